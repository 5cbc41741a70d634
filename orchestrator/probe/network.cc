// Attempts on the network: everything that is not the gate, and the gate asked for what it refuses.
#include <arpa/inet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/vm_sockets.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <net/route.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "orchestrator/probe/probe.h"

namespace probe {
namespace {

constexpr int kPatienceMs = 3000;

struct Endpoint {
  sockaddr_storage storage{};
  socklen_t size = 0;
  int family = AF_UNSPEC;
};

bool to_endpoint(const std::string& address, const std::string& port, Endpoint* out) {
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out->storage);
  if (::inet_pton(AF_INET, address.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
    out->size = sizeof *v4;
    out->family = AF_INET;
    return true;
  }
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out->storage);
  if (::inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
    out->size = sizeof *v6;
    out->family = AF_INET6;
    return true;
  }
  return false;
}

bool wait_readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, kPatienceMs) == 1;
}

bool connect_in_time(int fd, const Endpoint& to) {
  const timeval patience{kPatienceMs / 1000, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  return ::connect(fd, reinterpret_cast<const sockaddr*>(&to.storage), to.size) == 0;
}

// Reads what the far end says until it closes, and looks for the canary.
int canary_answer(int fd) {
  std::string answer;
  while (answer.size() < 65536 && wait_readable(fd)) {
    char buffer[4096];
    const ssize_t got = ::recv(fd, buffer, sizeof buffer, 0);
    if (got <= 0) break;
    answer.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(fd);
  if (answer.find("CANARY") != std::string::npos) return escaped("the far end answered");
  const auto line = answer.substr(0, answer.find('\r'));
  return blocked(line.empty() ? "closed without an answer" : line);
}

// tcp ADDRESS PORT: the far end answers with the canary. Connecting alone is not enough: the
// gate accepts what it then refuses.
int tcp_canary(const Arguments& arguments) {
  Endpoint to;
  if (!to_endpoint(arguments.at(0), arguments.at(1), &to)) return unusable("address");
  const int fd = ::socket(to.family, SOCK_STREAM, 0);
  if (fd < 0) return blocked_by_errno("socket");
  if (!connect_in_time(fd, to)) return blocked_by_errno("connect");
  const std::string request =
      "GET /CANARY HTTP/1.1\r\nHost: " + arguments.at(0) + "\r\nConnection: close\r\n\r\n";
  if (::send(fd, request.data(), request.size(), MSG_NOSIGNAL) < 0) return blocked_by_errno("send");
  return canary_answer(fd);
}

// udp ADDRESS PORT: an answer comes back.
int udp_canary(const Arguments& arguments) {
  Endpoint to;
  if (!to_endpoint(arguments.at(0), arguments.at(1), &to)) return unusable("address");
  const int fd = ::socket(to.family, SOCK_DGRAM, 0);
  if (fd < 0) return blocked_by_errno("socket");
  if (::sendto(fd, "CANARY?", 7, 0, reinterpret_cast<sockaddr*>(&to.storage), to.size) < 0) {
    return blocked_by_errno("sendto");
  }
  if (!wait_readable(fd)) return blocked("no answer");
  char buffer[512];
  const ssize_t got = ::recv(fd, buffer, sizeof buffer, 0);
  if (got > 0 &&
      std::string(buffer, static_cast<std::size_t>(got)).find("CANARY") != std::string::npos) {
    return escaped("the far end answered");
  }
  return got < 0 ? blocked_by_errno("recv") : blocked("another answer");
}

int open_socket(int family, int type, int protocol) {
  const int fd = ::socket(family, type, protocol);
  if (fd < 0) return blocked_by_errno("socket");
  ::close(fd);
  return escaped("socket opened");
}

int raw4(const Arguments&) {
  return open_socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
}
int raw6(const Arguments&) {
  return open_socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6);
}
int packet(const Arguments&) {
  return open_socket(AF_PACKET, SOCK_RAW, htons(0x0003));
}
int vsock(const Arguments&) {
  return open_socket(AF_VSOCK, SOCK_STREAM, 0);
}
int alg(const Arguments&) {
  return open_socket(AF_ALG, SOCK_SEQPACKET, 0);
}
int netfilter_netlink(const Arguments&) {
  return open_socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER);
}
int generic_netlink(const Arguments&) {
  return open_socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC);
}

// Brings lo down: the simplest change of the network set-up.
int interface_down(const Arguments&) {
  const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
  if (fd < 0) return blocked_by_errno("socket");
  ifreq request{};
  std::strncpy(request.ifr_name, "lo", sizeof request.ifr_name - 1);
  if (::ioctl(fd, SIOCGIFFLAGS, &request) != 0) return unusable("SIOCGIFFLAGS");
  request.ifr_flags = static_cast<short>(request.ifr_flags & ~IFF_UP);
  if (::ioctl(fd, SIOCSIFFLAGS, &request) != 0) return blocked_by_errno("SIOCSIFFLAGS");
  return escaped("lo is down");
}

// Adds an address over NETLINK_ROUTE and reads the kernel's verdict.
int add_address(const Arguments&) {
  const int fd = ::socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
  if (fd < 0) return blocked_by_errno("socket");
  struct {
    nlmsghdr header;
    ifaddrmsg address;
    rtattr attribute;
    in_addr value;
  } request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = RTM_NEWADDR;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE;
  request.address.ifa_family = AF_INET;
  request.address.ifa_prefixlen = 32;
  request.address.ifa_index = if_nametoindex("lo");
  request.attribute.rta_type = IFA_LOCAL;
  request.attribute.rta_len = RTA_LENGTH(sizeof(in_addr));
  ::inet_pton(AF_INET, "8.8.4.4", &request.value);
  if (::send(fd, &request, sizeof request, 0) < 0) return blocked_by_errno("send");
  char buffer[4096];
  const ssize_t got = ::recv(fd, buffer, sizeof buffer, 0);
  if (got < static_cast<ssize_t>(sizeof(nlmsghdr) + sizeof(nlmsgerr))) return unusable("recv");
  nlmsgerr verdict{};
  std::memcpy(&verdict, buffer + sizeof(nlmsghdr), sizeof verdict);
  if (verdict.error == 0) return escaped("address added");
  errno = -verdict.error;
  return blocked_by_errno("RTM_NEWADDR");
}

int bind_to_device(const Arguments& arguments) {
  const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
  if (fd < 0) return blocked_by_errno("socket");
  ifreq request{};
  std::strncpy(request.ifr_name, "lo", sizeof request.ifr_name - 1);
  if (::setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, &request, sizeof request) != 0) {
    return blocked_by_errno("SO_BINDTODEVICE");
  }
  ::close(fd);
  return udp_canary(arguments);
}

// resolve NAME: any address comes back.
int resolve(const Arguments& arguments) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int verdict = ::getaddrinfo(arguments.at(0).c_str(), nullptr, &hints, &found);
  if (verdict != 0) return blocked(::gai_strerror(verdict));
  char text[INET6_ADDRSTRLEN] = {};
  if (found->ai_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(found->ai_addr)->sin_addr, text,
                sizeof text);
  } else {
    ::inet_ntop(AF_INET6, &reinterpret_cast<sockaddr_in6*>(found->ai_addr)->sin6_addr, text,
                sizeof text);
  }
  return escaped(std::string("resolved to ") + text);
}

// unix PATH: a host's socket takes a connection.
int unix_connect(const Arguments& arguments) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  if (fd < 0) return unusable("socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, arguments.at(0).c_str(), sizeof address.sun_path - 1);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return blocked_by_errno("connect");
  }
  return escaped("connected to " + arguments.at(0));
}

// abstract NAME: the host's abstract sockets belong to its network namespace.
int abstract_connect(const Arguments& arguments) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  if (fd < 0) return unusable("socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, arguments.at(0).data(), arguments.at(0).size());
  const auto size = static_cast<socklen_t>(sizeof(sa_family_t) + 1 + arguments.at(0).size());
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), size) != 0)
    return blocked_by_errno("connect");
  return escaped("connected");
}

// proxy-get URL: asks the explicit port in absolute form; the canary comes back.
int proxy_get(const Arguments& arguments) {
  Endpoint gate;
  to_endpoint("127.0.0.1", "3128", &gate);
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0 || !connect_in_time(fd, gate)) return blocked_by_errno("connect to the gate");
  const std::string& url = arguments.at(0);
  const std::string after = url.substr(url.find("://") + 3);
  const std::string host = after.substr(0, after.find('/'));
  const std::string request =
      "GET " + url + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n";
  if (::send(fd, request.data(), request.size(), MSG_NOSIGNAL) < 0) return blocked_by_errno("send");
  return canary_answer(fd);
}

// after-the-cache URL: as proxy-get, when the gate has to ask its resolver again (TTL 0 is kept 1
// s).
int after_the_cache(const Arguments& arguments) {
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  return proxy_get(arguments);
}

// own-unix PATH: a Unix socket of the workload's own, reached by the workload.
int own_unix(const Arguments& arguments) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, arguments.at(0).c_str(), sizeof address.sun_path - 1);
  ::unlink(address.sun_path);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener, 1) != 0) {
    return blocked_by_errno("bind or listen");
  }
  return unix_connect(arguments);
}

// own-server ADDRESS: a server of the workload's own, reached by the workload.
int own_server(const Arguments& arguments) {
  Endpoint at;
  if (!to_endpoint(arguments.at(0), "0", &at)) return unusable("address");
  const int listener = ::socket(at.family, SOCK_STREAM, 0);
  if (::bind(listener, reinterpret_cast<sockaddr*>(&at.storage), at.size) != 0 ||
      ::listen(listener, 1) != 0) {
    return blocked_by_errno("bind or listen");
  }
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&at.storage), &at.size);
  std::thread server([listener] {
    const int peer = ::accept(listener, nullptr, nullptr);
    if (peer >= 0) {
      (void)::send(peer, "own", 3, MSG_NOSIGNAL);
      ::close(peer);
    }
  });
  const int fd = ::socket(at.family, SOCK_STREAM, 0);
  char text[4] = {};
  const bool fine = connect_in_time(fd, at) && ::recv(fd, text, 3, MSG_WAITALL) == 3;
  const int why = errno;
  if (!fine) ::shutdown(listener, SHUT_RDWR);
  server.join();
  if (!fine) return blocked(std::string("own server: ") + std::strerror(why));
  return escaped("own server answers");
}

}  // namespace

const Attempt kNetworkAttempts[] = {{"tcp", tcp_canary},
                                    {"udp", udp_canary},
                                    {"raw4", raw4},
                                    {"raw6", raw6},
                                    {"packet", packet},
                                    {"vsock", vsock},
                                    {"alg", alg},
                                    {"netlink-netfilter", netfilter_netlink},
                                    {"netlink-generic", generic_netlink},
                                    {"interface-down", interface_down},
                                    {"add-address", add_address},
                                    {"bind-to-device", bind_to_device},
                                    {"resolve", resolve},
                                    {"unix", unix_connect},
                                    {"abstract", abstract_connect},
                                    {"proxy-get", proxy_get},
                                    {"after-the-cache", after_the_cache},
                                    {"control-own-unix", own_unix},
                                    {"control-own-server", own_server},
                                    {nullptr, nullptr}};

}  // namespace probe
