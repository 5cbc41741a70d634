#include "common/os/sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace cofferdam::os {
namespace {

// linux/netfilter_ipv6/ip6_tables.h; that header does not compile as C++ beside netinet/in.h.
constexpr int kOriginalDestinationV6 = 80;

SocketAddress from_sockaddr(const sockaddr_storage& storage) {
  SocketAddress result;
  if (storage.ss_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &storage, sizeof in);
    std::memcpy(result.address.data(), &in.sin_addr, 4);
    result.port = ntohs(in.sin_port);
  } else {
    sockaddr_in6 in{};
    std::memcpy(&in, &storage, sizeof in);
    result.v6 = true;
    std::memcpy(result.address.data(), &in.sin6_addr, 16);
    result.port = ntohs(in.sin6_port);
    result.scope = in.sin6_scope_id;
  }
  return result;
}

Result<int> int_option(int fd, int option, const char* what) {
  int value = 0;
  socklen_t size = sizeof value;
  if (::getsockopt(fd, SOL_SOCKET, option, &value, &size) != 0) return Error::from_errno(what);
  return value;
}

}  // namespace

bool SocketAddress::is_loopback() const {
  if (!v6) return address[0] == 127;
  std::array<std::uint8_t, 16> loopback{};
  loopback[15] = 1;
  return address == loopback;
}

Result<SocketFacts> socket_facts(int fd) {
  SocketFacts facts;
  TRY_ASSIGN(const int domain, int_option(fd, SO_DOMAIN, "SO_DOMAIN"));
  if (domain != AF_INET && domain != AF_INET6) return Error("not an IPv4 or IPv6 socket");
  TRY_ASSIGN(const int type, int_option(fd, SO_TYPE, "SO_TYPE"));
  if (type == SOCK_STREAM) facts.kind = SocketKind::kStream;
  if (type == SOCK_DGRAM) facts.kind = SocketKind::kDatagram;
  TRY_ASSIGN(const int listening, int_option(fd, SO_ACCEPTCONN, "SO_ACCEPTCONN"));
  facts.listening = listening != 0;
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
    return Error::from_errno("getsockname");
  }
  facts.local = from_sockaddr(storage);
  size = sizeof facts.network_cookie;
  if (::getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &facts.network_cookie, &size) != 0) {
    return Error::from_errno("SO_NETNS_COOKIE");
  }
  return facts;
}

bool is_listening_unix(int fd) {
  const auto domain = int_option(fd, SO_DOMAIN, "SO_DOMAIN");
  const auto type = int_option(fd, SO_TYPE, "SO_TYPE");
  const auto listening = int_option(fd, SO_ACCEPTCONN, "SO_ACCEPTCONN");
  return domain.ok() && type.ok() && listening.ok() && *domain == AF_UNIX && *type == SOCK_STREAM &&
         *listening == 1;
}

namespace {

// The address of `name` in an open directory: short, whatever the directory's path is (unix(7)
// gives 108 bytes).
Result<sockaddr_un> address_in(const UniqueFd& directory, std::string_view name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path =
      "/proc/self/fd/" + std::to_string(directory.get()) + "/" + std::string(name);
  if (path.size() >= sizeof address.sun_path) return Error("a socket's name is too long: " + path);
  path.copy(address.sun_path, path.size());
  return address;
}

Result<UniqueFd> open_directory(const std::filesystem::path& directory) {
  UniqueFd fd(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return Error::from_errno(directory.string());
  return fd;
}

}  // namespace

namespace {

Result<UniqueFd> listen_as(int type, const std::filesystem::path& directory,
                           std::string_view name) {
  TRY_ASSIGN(const UniqueFd parent, open_directory(directory));
  TRY_ASSIGN(const sockaddr_un address, address_in(parent, name));
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (!fd) return Error::from_errno("socket");
  // Before bind(2), which gives the name the socket's own mode (unix(7)).
  if (::fchmod(fd.get(), 0600) != 0) return Error::from_errno("fchmod");
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return Error::from_errno((directory / name).string());
  }
  if (::listen(fd.get(), SOMAXCONN) != 0) return Error::from_errno("listen");
  return fd;
}

Status connect_to(const UniqueFd& fd, const std::filesystem::path& directory,
                  std::string_view name) {
  TRY_ASSIGN(const UniqueFd parent, open_directory(directory));
  TRY_ASSIGN(const sockaddr_un address, address_in(parent, name));
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return Error::from_errno((directory / name).string());
  }
  return {};
}

}  // namespace

Result<UniqueFd> listen_unix(const std::filesystem::path& directory, std::string_view name) {
  return listen_as(SOCK_STREAM, directory, name);
}

Result<UniqueFd> connect_unix(const std::filesystem::path& directory, std::string_view name,
                              std::chrono::milliseconds patience) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return Error::from_errno("socket");
  timeval limit{};
  limit.tv_sec = static_cast<time_t>(patience.count() / 1000);
  limit.tv_usec = static_cast<suseconds_t>(patience.count() % 1000 * 1000);
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO}) {
    if (::setsockopt(fd.get(), SOL_SOCKET, option, &limit, sizeof limit) != 0) {
      return Error::from_errno("setsockopt");
    }
  }
  TRY(connect_to(fd, directory, name));
  return fd;
}

Result<UniqueFd> listen_unix_packets(const std::filesystem::path& directory,
                                     std::string_view name) {
  return listen_as(SOCK_SEQPACKET | SOCK_NONBLOCK, directory, name);
}

Result<UniqueFd> connect_unix_packets(const std::filesystem::path& directory,
                                      std::string_view name) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd) return Error::from_errno("socket");
  TRY(connect_to(fd, directory, name));
  return fd;
}

Result<UniqueFd> accept_packets(int listener) {
  UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) return Error::from_errno("accept");
  return fd;
}

Result<std::uint32_t> peer_uid(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return Error::from_errno("SO_PEERCRED");
  }
  return peer.uid;
}

Result<SocketAddress> original_destination(int fd, bool v6) {
  sockaddr_storage storage{};
  socklen_t size = v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  const int level = v6 ? IPPROTO_IPV6 : IPPROTO_IP;
  const int option = v6 ? kOriginalDestinationV6 : SO_ORIGINAL_DST;
  if (::getsockopt(fd, level, option, &storage, &size) != 0) {
    return Error::from_errno("SO_ORIGINAL_DST");
  }
  return from_sockaddr(storage);
}

std::optional<SocketAddress> peer_address(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return std::nullopt;
  return from_sockaddr(storage);
}

Result<std::vector<SocketAddress>> interface_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return Error::from_errno("getifaddrs");
  std::vector<SocketAddress> addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    sockaddr_storage storage{};
    std::memcpy(&storage, entry->ifa_addr,
                family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    addresses.push_back(from_sockaddr(storage));
  }
  ::freeifaddrs(list);
  return addresses;
}

Result<UniqueFd> watch_interface_addresses() {
  UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
  if (!fd) return Error::from_errno("netlink socket");
  sockaddr_nl local{};
  local.nl_family = AF_NETLINK;
  local.nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&local), sizeof local) != 0) {
    return Error::from_errno("netlink bind");
  }
  return fd;
}

void drain_netlink(int fd) {
  std::array<char, 8192> buffer{};
  while (true) {
    const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got > 0 || (got < 0 && (errno == ENOBUFS || errno == EINTR))) continue;
    return;
  }
}

std::uint64_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 65536);
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
  (void)::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

}  // namespace cofferdam::os
