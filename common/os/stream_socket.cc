#include "common/os/stream_socket.h"

#include <asm/ioctls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace cofferdam::os {
namespace {

constexpr int kOn = 1;

}  // namespace

Opened accept_now(int listener) {
  UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd) return {std::move(fd)};
  return {UniqueFd(), errno};
}

Opened open_stream(bool v6) {
  UniqueFd fd(::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return {UniqueFd(), errno};
  (void)::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &kOn, sizeof kOn);
  return {std::move(fd)};
}

void send_with_handshake(int fd) {
  const int off = 0;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &off, sizeof off);
}

int connect_now(int fd, const SocketAddress& peer) {
  int result = 0;
  if (peer.v6) {
    sockaddr_in6 to{};
    to.sin6_family = AF_INET6;
    to.sin6_port = htons(peer.port);
    to.sin6_scope_id = peer.scope;
    std::memcpy(&to.sin6_addr, peer.address.data(), sizeof to.sin6_addr);
    result = ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to);
  } else {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(peer.port);
    std::memcpy(&to.sin_addr, peer.address.data(), sizeof to.sin_addr);
    result = ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to);
  }
  return result == 0 || errno == EINPROGRESS ? 0 : errno;
}

void shutdown_sending(int fd) {
  (void)::shutdown(fd, SHUT_WR);
}

void close_with_reset(UniqueFd fd) {
  const linger at_once = {.l_onoff = 1, .l_linger = 0};
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

std::uint64_t unsent_bytes(int fd) {
  int count = 0;
  if (::ioctl(fd, TIOCOUTQ, &count) != 0 || count < 0) return 0;
  return static_cast<std::uint64_t>(count);
}

}  // namespace cofferdam::os
