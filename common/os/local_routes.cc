#include "common/os/local_routes.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>

namespace cofferdam::os {
namespace {

struct Request {
  nlmsghdr header;
  rtmsg route;
};

std::optional<SocketAddress> destination(const rtmsg& route, std::span<const char> attributes) {
  const bool v6 = route.rtm_family == AF_INET6;
  const std::size_t size = v6 ? 16 : 4;
  // Everything, without an attribute: `ip route add local default`.
  if (route.rtm_dst_len == 0) return SocketAddress{v6, {}, 0, 0};
  while (attributes.size() >= sizeof(rtattr)) {
    rtattr attribute{};
    std::memcpy(&attribute, attributes.data(), sizeof attribute);
    if (attribute.rta_len < sizeof attribute || attribute.rta_len > attributes.size()) break;
    if (attribute.rta_type == RTA_DST && attribute.rta_len == RTA_LENGTH(size)) {
      SocketAddress address;
      address.v6 = v6;
      std::memcpy(address.address.data(), attributes.data() + RTA_LENGTH(0), size);
      return address;
    }
    attributes =
        attributes.subspan(std::min<std::size_t>(RTA_ALIGN(attribute.rta_len), attributes.size()));
  }
  return std::nullopt;
}

// One message of the dump; false at its end.
Result<bool> read_message(std::span<const char> message, std::vector<LocalRoute>& routes) {
  nlmsghdr header{};
  std::memcpy(&header, message.data(), sizeof header);
  if (header.nlmsg_type == NLMSG_DONE) return false;
  if (header.nlmsg_type == NLMSG_ERROR) {
    nlmsgerr error{};
    std::memcpy(&error, message.data() + NLMSG_HDRLEN,
                std::min(sizeof error, message.size() - NLMSG_HDRLEN));
    return Error::from_errno("local routes", -error.error);
  }
  constexpr std::size_t kStart = NLMSG_LENGTH(sizeof(rtmsg));
  if (header.nlmsg_type != RTM_NEWROUTE || message.size() < kStart) return true;
  rtmsg route{};
  std::memcpy(&route, message.data() + NLMSG_HDRLEN, sizeof route);
  const bool ours = route.rtm_type == RTN_LOCAL || route.rtm_type == RTN_ANYCAST ||
                    route.rtm_type == RTN_BROADCAST;
  if (route.rtm_table != RT_TABLE_LOCAL || !ours) return true;
  if (const auto address = destination(route, message.subspan(kStart))) {
    routes.push_back({*address, route.rtm_dst_len});
  }
  return true;
}

Status dump(int fd, unsigned char family, std::vector<LocalRoute>& routes) {
  Request request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = RTM_GETROUTE;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.route.rtm_family = family;
  request.route.rtm_table = RT_TABLE_LOCAL;
  if (::send(fd, &request, sizeof request, 0) < 0) return Error::from_errno("local routes");
  std::array<char, 65536> buffer{};
  while (true) {
    const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Error::from_errno("local routes");
    std::span<const char> rest(buffer.data(), static_cast<std::size_t>(got));
    while (rest.size() >= NLMSG_HDRLEN) {
      nlmsghdr header{};
      std::memcpy(&header, rest.data(), sizeof header);
      if (header.nlmsg_len < NLMSG_HDRLEN || header.nlmsg_len > rest.size()) {
        return Error("local routes: a message that does not fit");
      }
      TRY_ASSIGN(const bool more, read_message(rest.first(header.nlmsg_len), routes));
      if (!more) return {};
      rest = rest.subspan(std::min<std::size_t>(NLMSG_ALIGN(header.nlmsg_len), rest.size()));
    }
  }
}

}  // namespace

Result<std::vector<LocalRoute>> local_routes() {
  const UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!fd) return Error::from_errno("netlink socket");
  // The kernel then sends the one table instead of all; older ones send all.
  const int strict = 1;
  (void)::setsockopt(fd.get(), SOL_NETLINK, NETLINK_GET_STRICT_CHK, &strict, sizeof strict);
  const timeval patience{5, 0};
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::vector<LocalRoute> routes;
  TRY(dump(fd.get(), AF_INET, routes));
  TRY(dump(fd.get(), AF_INET6, routes));
  return routes;
}

}  // namespace cofferdam::os
