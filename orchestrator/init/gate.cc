#include "orchestrator/init/gate.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "orchestrator/init/loopback.h"
#include "orchestrator/init/protocol.h"

namespace cofferdam::init {
namespace {

constexpr int kBacklog = 1024;

Result<os::UniqueFd> open_socket(int family, int type, int port) {
  os::UniqueFd fd(::socket(family, type | SOCK_CLOEXEC, 0));
  if (!fd) return Error::from_errno("socket");
  const int on = 1;
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) {
    return Error::from_errno("SO_REUSEADDR");
  }
  sockaddr_storage address{};
  socklen_t size = sizeof(sockaddr_in);
  if (family == AF_INET) {
    auto* in = reinterpret_cast<sockaddr_in*>(&address);
    in->sin_family = AF_INET;
    in->sin_port = htons(static_cast<std::uint16_t>(port));
    in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  } else {
    if (::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) != 0) {
      return Error::from_errno("IPV6_V6ONLY");
    }
    auto* in = reinterpret_cast<sockaddr_in6*>(&address);
    in->sin6_family = AF_INET6;
    in->sin6_port = htons(static_cast<std::uint16_t>(port));
    in->sin6_addr = in6addr_loopback;
    size = sizeof(sockaddr_in6);
  }
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    return Error::from_errno("bind port " + std::to_string(port));
  }
  if (type == SOCK_STREAM && ::listen(fd.get(), kBacklog) != 0) {
    return Error::from_errno("listen on port " + std::to_string(port));
  }
  return fd;
}

}  // namespace

Result<std::vector<os::UniqueFd>> open_gate() {
  struct Wanted {
    int type;
    int port;
  };
  constexpr Wanted kWanted[] = {{SOCK_DGRAM, kDnsPort},
                                {SOCK_STREAM, kDnsPort},
                                {SOCK_STREAM, kExplicitPort},
                                {SOCK_STREAM, kTransparentPort}};
  std::vector<os::UniqueFd> sockets;
  for (const int family : {AF_INET, AF_INET6}) {
    if (family == AF_INET6 && !has_ipv6()) continue;
    for (const Wanted& wanted : kWanted) {
      TRY_ASSIGN(os::UniqueFd fd, open_socket(family, wanted.type, wanted.port));
      sockets.push_back(std::move(fd));
    }
  }
  return sockets;
}

}  // namespace cofferdam::init
