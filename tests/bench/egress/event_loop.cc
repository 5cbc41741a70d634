#include "tests/bench/egress/event_loop.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cofferdam::bench {
namespace {

constexpr std::size_t kEventsAtOnce = 256;
constexpr int kBacklog = 4096;
constexpr int kDatagramBuffer = 4 << 20;  // bytes

void set_flag(int fd, int level, int name) {
  const int on = 1;
  if (::setsockopt(fd, level, name, &on, sizeof on) != 0) die("setsockopt");
}

os::UniqueFd make_socket(int family, int type) {
  os::UniqueFd fd(::socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) die("socket");
  return fd;
}

}  // namespace

void die(const std::string& what) {
  std::fprintf(stderr, "bench: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);  // NOLINT(concurrency-mt-unsafe)
}

SocketAt socket_at(const std::string& text) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos) die("no port in '" + text + "'");
  std::string host = text.substr(0, colon);
  const auto port = htons(static_cast<std::uint16_t>(std::atoi(text.c_str() + colon + 1)));
  SocketAt at;
  if (host.starts_with('[')) {
    host = host.substr(1, host.size() - 2);
    auto* six = reinterpret_cast<sockaddr_in6*>(&at.storage);
    six->sin6_family = AF_INET6;
    six->sin6_port = port;
    at.size = sizeof *six;
    if (::inet_pton(AF_INET6, host.c_str(), &six->sin6_addr) != 1) die("address '" + text + "'");
    return at;
  }
  auto* four = reinterpret_cast<sockaddr_in*>(&at.storage);
  four->sin_family = AF_INET;
  four->sin_port = port;
  at.size = sizeof *four;
  if (::inet_pton(AF_INET, host.c_str(), &four->sin_addr) != 1) die("address '" + text + "'");
  return at;
}

os::UniqueFd listen_on(const SocketAt& at) {
  os::UniqueFd fd = make_socket(at.family(), SOCK_STREAM);
  set_flag(fd.get(), SOL_SOCKET, SO_REUSEADDR);
  set_flag(fd.get(), IPPROTO_TCP, TCP_NODELAY);  // accepted sockets inherit it
  if (::bind(fd.get(), at.get(), at.size) != 0) die("bind");
  if (::listen(fd.get(), kBacklog) != 0) die("listen");
  return fd;
}

os::UniqueFd bind_datagrams(const SocketAt& at) {
  os::UniqueFd fd = make_socket(at.family(), SOCK_DGRAM);
  if (::bind(fd.get(), at.get(), at.size) != 0) die("bind");
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &kDatagramBuffer, sizeof kDatagramBuffer);
  return fd;
}

os::UniqueFd begin_connect(const SocketAt& at) {
  os::UniqueFd fd = make_socket(at.family(), SOCK_STREAM);
  set_flag(fd.get(), IPPROTO_TCP, TCP_NODELAY);
  if (::connect(fd.get(), at.get(), at.size) != 0 && errno != EINPROGRESS) die("connect");
  return fd;
}

EventLoop::EventLoop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) die("epoll_create1");
}

void EventLoop::add(int fd, std::uint32_t events, std::uint64_t what) {
  epoll_event event{events, {}};
  event.data.u64 = what;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) die("epoll_ctl");
}

void EventLoop::change(int fd, std::uint32_t events, std::uint64_t what) {
  epoll_event event{events, {}};
  event.data.u64 = what;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) die("epoll_ctl");
}

const std::vector<epoll_event>& EventLoop::wait(std::chrono::nanoseconds timeout) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  const std::int64_t left = std::max<std::int64_t>(timeout.count(), 0);
  const timespec time{left / kSecond, left % kSecond};
  events_.resize(kEventsAtOnce);
  const int count =
      ::epoll_pwait2(epoll_.get(), events_.data(), static_cast<int>(kEventsAtOnce), &time, nullptr);
  if (count < 0 && errno != EINTR) die("epoll_pwait2");
  events_.resize(static_cast<std::size_t>(count < 0 ? 0 : count));
  return events_;
}

}  // namespace cofferdam::bench
