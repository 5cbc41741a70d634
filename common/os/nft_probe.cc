#include "common/os/nft_probe.h"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "common/os/unique_fd.h"

namespace cofferdam::os {
namespace {

// Messages of a batch, in netlink(7)'s and nfnetlink's form.
class Batch {
 public:
  void begin(std::uint16_t type, std::uint16_t flags, std::uint8_t family, std::uint16_t resource) {
    start_ = bytes_.size();
    nlmsghdr header{};
    header.nlmsg_type = type;
    header.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
    header.nlmsg_seq = ++sequence_;
    put(&header, sizeof header);
    const nfgenmsg generic{family, NFNETLINK_V0, htons(resource)};
    put(&generic, sizeof generic);
  }
  void end() { patch32(start_, static_cast<std::uint32_t>(bytes_.size() - start_)); }

  void attribute(std::uint16_t type, std::string_view value) {
    const std::size_t at = nest(type);
    put(value.data(), value.size());
    close(at);
  }
  void text(std::uint16_t type, const std::string& value) {
    attribute(type, std::string_view(value.c_str(), value.size() + 1));
  }
  void number(std::uint16_t type, std::uint32_t value) {
    const std::uint32_t wire = htonl(value);
    attribute(type, std::string_view(reinterpret_cast<const char*>(&wire), sizeof wire));
  }
  std::size_t nest(std::uint16_t type) {
    const std::size_t at = bytes_.size();
    const nlattr attr{0, type};
    put(&attr, sizeof attr);
    return at;
  }
  void close(std::size_t at) {
    const auto length = static_cast<std::uint16_t>(bytes_.size() - at);
    std::memcpy(bytes_.data() + at, &length, sizeof length);
    bytes_.resize(NLMSG_ALIGN(bytes_.size()), '\0');
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void put(const void* data, std::size_t size) {
    bytes_.append(static_cast<const char*>(data), size);
  }
  void patch32(std::size_t at, std::uint32_t value) {
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  std::string bytes_;
  std::size_t start_ = 0;
  std::uint32_t sequence_ = 0;
};

constexpr std::uint16_t nft(int message) {
  return static_cast<std::uint16_t>((NFNL_SUBSYS_NFTABLES << 8) | message);
}

std::string redirect_batch() {
  constexpr std::uint16_t kMake = NLM_F_CREATE | NLM_F_ACK;
  constexpr std::uint16_t kNested = NLA_F_NESTED;
  Batch batch;
  batch.begin(NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
  batch.end();
  batch.begin(nft(NFT_MSG_NEWTABLE), kMake, NFPROTO_INET, 0);
  batch.text(NFTA_TABLE_NAME, "probe");
  batch.end();
  batch.begin(nft(NFT_MSG_NEWCHAIN), kMake, NFPROTO_INET, 0);
  batch.text(NFTA_CHAIN_TABLE, "probe");
  batch.text(NFTA_CHAIN_NAME, "out");
  const std::size_t hook = batch.nest(kNested | NFTA_CHAIN_HOOK);
  batch.number(NFTA_HOOK_HOOKNUM, NF_INET_LOCAL_OUT);
  batch.number(NFTA_HOOK_PRIORITY, static_cast<std::uint32_t>(-150));
  batch.close(hook);
  batch.text(NFTA_CHAIN_TYPE, "nat");
  batch.end();
  batch.begin(nft(NFT_MSG_NEWRULE), kMake | NLM_F_APPEND, NFPROTO_INET, 0);
  batch.text(NFTA_RULE_TABLE, "probe");
  batch.text(NFTA_RULE_CHAIN, "out");
  const std::size_t expressions = batch.nest(kNested | NFTA_RULE_EXPRESSIONS);
  const std::size_t element = batch.nest(kNested | NFTA_LIST_ELEM);
  batch.text(NFTA_EXPR_NAME, "redir");
  batch.close(batch.nest(kNested | NFTA_EXPR_DATA));
  batch.close(element);
  batch.close(expressions);
  batch.end();
  batch.begin(NFNL_MSG_BATCH_END, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
  batch.end();
  return batch.bytes();
}

}  // namespace

int load_redirect_probe() {
  const UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER));
  if (!socket) return errno;
  const timeval patience{2, 0};
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  const std::string batch = redirect_batch();
  if (::sendto(socket.get(), batch.data(), batch.size(), 0,
               reinterpret_cast<const sockaddr*>(&kernel), sizeof kernel) < 0) {
    return errno;
  }
  for (int acknowledged = 0; acknowledged < 3;) {
    alignas(nlmsghdr) char buffer[8192];
    const ssize_t got = ::recv(socket.get(), buffer, sizeof buffer, 0);
    if (got < 0) return errno;
    auto left = static_cast<std::uint32_t>(got);
    for (const auto* message = reinterpret_cast<const nlmsghdr*>(buffer);
         left >= sizeof(nlmsghdr) && message->nlmsg_len >= sizeof(nlmsghdr) &&
         message->nlmsg_len <= left;) {
      if (message->nlmsg_type == NLMSG_ERROR) {
        const int error = static_cast<const nlmsgerr*>(NLMSG_DATA(message))->error;
        if (error != 0) return -error;
        ++acknowledged;
      }
      const std::uint32_t step = std::min<std::uint32_t>(left, NLMSG_ALIGN(message->nlmsg_len));
      left -= step;
      message = reinterpret_cast<const nlmsghdr*>(reinterpret_cast<const char*>(message) + step);
    }
  }
  return 0;
}

}  // namespace cofferdam::os
