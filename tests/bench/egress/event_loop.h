// A small epoll loop for the programs of the benchmark: one thread, level triggered, and sockets
// that cost as little as they can, so that what is measured is the proxy.
#pragma once

#include <netinet/in.h>
#include <sys/epoll.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/os/unique_fd.h"

namespace cofferdam::bench {

using Clock = std::chrono::steady_clock;

// "ADDRESS:PORT" or "[ADDRESS6]:PORT". Anything else ends the program.
struct SocketAt {
  sockaddr_storage storage{};
  socklen_t size = 0;
  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
SocketAt socket_at(const std::string& text);

// Ends the program with the name of what failed and errno.
[[noreturn]] void die(const std::string& what);

os::UniqueFd listen_on(const SocketAt& at);
os::UniqueFd bind_datagrams(const SocketAt& at);
// Non-blocking, TCP_NODELAY; the connection may still be under way.
os::UniqueFd begin_connect(const SocketAt& at);

class EventLoop final {
 public:
  EventLoop();
  // `what` comes back with each event.
  void add(int fd, std::uint32_t events, std::uint64_t what);
  void change(int fd, std::uint32_t events, std::uint64_t what);
  // At most `timeout`; the result is valid until the next call.
  const std::vector<epoll_event>& wait(std::chrono::nanoseconds timeout);

 private:
  os::UniqueFd epoll_;
  std::vector<epoll_event> events_;
};

}  // namespace cofferdam::bench
