#include "orchestrator/init/netlink.h"

#include <arpa/inet.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstring>

namespace cofferdam::init {

void NetlinkBatch::begin(std::uint16_t type, std::uint16_t flags) {
  message_start_ = buffer_.size();
  nlmsghdr header{};
  header.nlmsg_type = type;
  header.nlmsg_flags = static_cast<std::uint16_t>(flags | NLM_F_REQUEST);
  header.nlmsg_seq = ++sequence_;
  if ((flags & NLM_F_ACK) != 0) ++wanted_acks_;
  append(header);
}

void NetlinkBatch::append(const void* bytes, std::size_t size) {
  buffer_.append(static_cast<const char*>(bytes), size);
  buffer_.append((4 - size % 4) % 4, '\0');
}

void NetlinkBatch::attribute(std::uint16_t type, const void* bytes, std::size_t size) {
  nlattr header{};
  header.nla_type = type;
  header.nla_len = static_cast<std::uint16_t>(sizeof header + size);
  append(header);
  append(bytes, size);
}

void NetlinkBatch::attribute_text(std::uint16_t type, std::string_view text) {
  const std::string terminated(text);
  attribute(type, terminated.c_str(), terminated.size() + 1);
}

void NetlinkBatch::attribute_be32(std::uint16_t type, std::uint32_t value) {
  attribute_u32(type, htonl(value));
}

void NetlinkBatch::attribute_u32(std::uint16_t type, std::uint32_t value) {
  attribute(type, &value, sizeof value);
}

std::size_t NetlinkBatch::open_nest(std::uint16_t type) {
  const std::size_t start = buffer_.size();
  nlattr header{};
  header.nla_type = static_cast<std::uint16_t>(type | NLA_F_NESTED);
  append(header);
  return start;
}

void NetlinkBatch::close_nest(std::size_t nest) {
  const auto size = static_cast<std::uint16_t>(buffer_.size() - nest);
  std::memcpy(buffer_.data() + nest + offsetof(nlattr, nla_len), &size, sizeof size);
}

void NetlinkBatch::end() {
  const auto size = static_cast<std::uint32_t>(buffer_.size() - message_start_);
  std::memcpy(buffer_.data() + message_start_ + offsetof(nlmsghdr, nlmsg_len), &size, sizeof size);
}

Result<NetlinkSocket> NetlinkSocket::open(int protocol) {
  os::UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol));
  if (!fd) return Error::from_errno("netlink socket");
  const timeval patience{5, 0};
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0) {
    return Error::from_errno("netlink timeout");
  }
  return NetlinkSocket(std::move(fd));
}

Status NetlinkSocket::transact(const NetlinkBatch& batch) const {
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  const std::string& bytes = batch.bytes();
  if (::sendto(fd_.get(), bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&kernel),
               sizeof kernel) != static_cast<ssize_t>(bytes.size())) {
    return Error::from_errno("netlink send");
  }
  alignas(nlmsghdr) char buffer[16384];
  int acks = 0;
  while (acks < batch.wanted_acks()) {
    const ssize_t got = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error::from_errno("netlink answer");
    auto left = static_cast<unsigned int>(got);
    for (auto* header = reinterpret_cast<nlmsghdr*>(buffer); NLMSG_OK(header, left);
         header = NLMSG_NEXT(header, left)) {
      if (header->nlmsg_type != NLMSG_ERROR) continue;
      nlmsgerr answer{};
      std::memcpy(&answer, NLMSG_DATA(header), sizeof answer);
      if (answer.error != 0) {
        return Error::from_errno("message " + std::to_string(answer.msg.nlmsg_seq), -answer.error);
      }
      ++acks;
    }
  }
  return {};
}

}  // namespace cofferdam::init
