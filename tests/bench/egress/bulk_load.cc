#include "tests/bench/egress/bulk_load.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <vector>

#include "tests/bench/egress/event_loop.h"

namespace cofferdam::bench {
namespace {

constexpr std::size_t kPiece = 1U << 20U;
constexpr std::chrono::milliseconds kRunUp{300};

struct Tunnel {
  os::UniqueFd fd;
  bool open = false;  // the head has come
};

// Blocking: bulk is about what comes after.
os::UniqueFd open_tunnel(const LoadOptions& options) {
  const SocketAt at = socket_at(options.required("to"));
  os::UniqueFd fd(::socket(at.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd || ::connect(fd.get(), at.get(), at.size) != 0) die("connect");
  if (options.text("via", "connect") != "connect") return fd;
  const std::string authority = options.required("host") + ":" + options.required("port");
  const std::string request =
      "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n\r\n";
  if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) die("send");
  std::string head;
  while (!head.ends_with("\r\n\r\n")) {
    char byte = 0;
    if (::recv(fd.get(), &byte, 1, 0) != 1) die("the proxy closed");
    head += byte;
  }
  errno = 0;
  if (head.find(" 200") != 8) die("refused: " + head);
  return fd;
}

std::uint64_t drain(int fd) {
  std::uint64_t bytes = 0;
  while (true) {
    const ssize_t count = ::recv(fd, nullptr, kPiece, MSG_TRUNC | MSG_DONTWAIT);
    if (count < 0 && errno == EAGAIN) return bytes;
    if (count <= 0) die("a tunnel ended");
    bytes += static_cast<std::uint64_t>(count);
    if (bytes >= kPiece) return bytes;
  }
}

std::uint64_t fill(int fd, int file) {
  off_t offset = 0;
  const ssize_t count = ::sendfile(fd, file, &offset, kPiece);
  if (count < 0 && errno != EAGAIN) die("sendfile");
  return count < 0 ? 0 : static_cast<std::uint64_t>(count);
}

}  // namespace

void run_bulk(const LoadOptions& options) {
  const bool up = options.text("direction", "down") == "up";
  const os::UniqueFd file(::memfd_create("bulk", MFD_CLOEXEC));
  const std::string content(kPiece, 'b');
  if (!file || ::write(file.get(), content.data(), kPiece) != static_cast<ssize_t>(kPiece)) {
    die("memfd");
  }
  std::vector<os::UniqueFd> tunnels;
  EventLoop loop;
  for (std::uint64_t i = 0; i < options.number("connections", 1); ++i) {
    tunnels.push_back(open_tunnel(options));
    const int fd = tunnels.back().get();
    if (up && ::fcntl(fd, F_SETFL, O_NONBLOCK) != 0) die("fcntl");
    loop.add(fd, up ? EPOLLOUT : EPOLLIN, static_cast<std::uint64_t>(fd));
  }
  const Clock::time_point started = Clock::now() + kRunUp;
  const Clock::time_point end = started + options.duration();
  std::uint64_t bytes = 0;
  Clock::time_point now = Clock::now();
  while (now < end) {
    for (const epoll_event& event : loop.wait(end - now)) {
      const int fd = static_cast<int>(event.data.u64);
      const std::uint64_t moved = up ? fill(fd, file.get()) : drain(fd);
      if (now >= started) bytes += moved;
    }
    now = Clock::now();
  }
  Report report;
  report.add("bytes", bytes);
  const std::chrono::duration<double> time = now - started;
  report.add("mb_per_second", static_cast<double>(bytes) / 1e6 / time.count());
  report.print();
}

}  // namespace cofferdam::bench
