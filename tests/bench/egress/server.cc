// bench-egress-server ROLE=ADDRESS:PORT…: the far end of every load, one thread, as cheap as it can
// be.
//   reply   128 bytes for every piece that comes
//   http    a response of 1 KiB for every request head
//   source  bytes without end, from a file
//   sink    takes everything and forgets it
//   dns     A 93.184.216.34 for every name, other types empty
// Says "ready" on standard output and ends when standard input does.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/os/sockets.h"
#include "tests/bench/egress/event_loop.h"

namespace cofferdam::bench {
namespace {

constexpr std::size_t kPiece = 1U << 20U;
constexpr std::size_t kRequest = 65536;

enum class Role : std::uint8_t { kReply, kHttp, kSource, kSink, kDns };

Role role_named(const std::string& name) {
  if (name == "reply") return Role::kReply;
  if (name == "http") return Role::kHttp;
  if (name == "source") return Role::kSource;
  if (name == "sink") return Role::kSink;
  if (name == "dns") return Role::kDns;
  die("role '" + name + "'");
}

class FarEnd final {
 public:
  FarEnd();
  void add(const std::string& word);
  void run();

 private:
  struct Socket {
    os::UniqueFd fd;
    Role role = Role::kReply;
    bool listening = false;
    unsigned ends = 0;  // of a request's head: how much of CR LF CR LF has come
  };
  void accept(const Socket& listener);
  bool serve(Socket& socket);
  bool serve_http(Socket& socket, std::string_view bytes);
  void answer_dns(int fd);

  EventLoop loop_;
  std::unordered_map<int, Socket> sockets_;
  os::UniqueFd file_;
  std::string reply_ = std::string(128, 'r');
  std::string response_;
  std::vector<char> buffer_ = std::vector<char>(kRequest);
};

FarEnd::FarEnd() : file_(::memfd_create("source", MFD_CLOEXEC)) {
  const std::string content(kPiece, 's');
  if (::write(file_.get(), content.data(), kPiece) != static_cast<ssize_t>(kPiece)) die("memfd");
  response_ = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\n\r\n" +
              std::string(1024, 'h');
  loop_.add(STDIN_FILENO, EPOLLIN, STDIN_FILENO);
}

void FarEnd::add(const std::string& word) {
  const auto equals = word.find('=');
  const Role role = role_named(word.substr(0, equals));
  const SocketAt at = socket_at(word.substr(equals + 1));
  Socket socket{role == Role::kDns ? bind_datagrams(at) : listen_on(at), role, role != Role::kDns};
  const int fd = socket.fd.get();
  loop_.add(fd, EPOLLIN, static_cast<std::uint64_t>(fd));
  sockets_.emplace(fd, std::move(socket));
}

void FarEnd::accept(const Socket& listener) {
  // A few at a time: what is connected already is served too.
  for (int i = 0; i < 16; ++i) {
    os::UniqueFd fd(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) return;
    const int number = fd.get();
    loop_.add(number, listener.role == Role::kSource ? EPOLLOUT : EPOLLIN,
              static_cast<std::uint64_t>(number));
    sockets_.insert_or_assign(number, Socket{std::move(fd), listener.role});
  }
}

bool FarEnd::serve_http(Socket& socket, std::string_view bytes) {
  std::string answers;
  for (const char c : bytes) {
    const char wanted = socket.ends % 2 == 0 ? '\r' : '\n';
    socket.ends = c == wanted ? socket.ends + 1 : (c == '\r' ? 1U : 0U);
    if (socket.ends < 4) continue;
    socket.ends = 0;
    answers += response_;
  }
  return answers.empty() ||
         ::send(socket.fd.get(), answers.data(), answers.size(), MSG_NOSIGNAL) > 0;
}

// False when it is over.
bool FarEnd::serve(Socket& socket) {
  const int fd = socket.fd.get();
  if (socket.role == Role::kSource) {
    off_t offset = 0;
    return ::sendfile(fd, file_.get(), &offset, kPiece) >= 0 || errno == EAGAIN;
  }
  const bool sink = socket.role == Role::kSink;
  const ssize_t count = ::recv(fd, sink ? nullptr : buffer_.data(), sink ? kPiece : buffer_.size(),
                               sink ? MSG_TRUNC : 0);
  if (count < 0 && errno == EAGAIN) return true;
  if (count <= 0) return false;
  if (socket.role == Role::kReply) {
    return ::send(fd, reply_.data(), reply_.size(), MSG_NOSIGNAL) > 0;
  }
  if (socket.role == Role::kHttp) {
    return serve_http(socket, {buffer_.data(), static_cast<std::size_t>(count)});
  }
  return true;
}

void FarEnd::answer_dns(int fd) {
  std::array<char, 2048> packet{};
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  while (true) {
    size = sizeof peer;
    const ssize_t count =
        ::recvfrom(fd, packet.data(), packet.size(), 0, reinterpret_cast<sockaddr*>(&peer), &size);
    if (count < 0) return;
    std::size_t end = 12;
    const auto length = static_cast<std::size_t>(count);
    while (end < length && packet[end] != 0) end += static_cast<unsigned char>(packet[end]) + 1U;
    if (end + 5 > length) continue;
    const bool is_a = packet[end + 1] == 0 && packet[end + 2] == 1;
    std::string answer(packet.data(), end + 5);
    answer[2] = static_cast<char>(0x81);
    answer[3] = static_cast<char>(0x80);
    answer.replace(4, 8, std::string("\0\1\0\0\0\0\0\0", 8));
    if (is_a) {
      answer[7] = 1;
      // A pointer to the name, type A, class IN, TTL 300, 93.184.216.34.
      answer += std::string("\xc0\x0c\0\1\0\1\0\0\1\x2c\0\4\x5d\xb8\xd8\x22", 16);
    }
    (void)::sendto(fd, answer.data(), answer.size(), 0, reinterpret_cast<sockaddr*>(&peer), size);
  }
}

void FarEnd::run() {
  while (true) {
    for (const epoll_event& event : loop_.wait(std::chrono::seconds(60))) {
      const int fd = static_cast<int>(event.data.u64);
      if (fd == STDIN_FILENO) return;
      const auto found = sockets_.find(fd);
      if (found == sockets_.end()) continue;
      Socket& socket = found->second;
      if (socket.role == Role::kDns) {
        answer_dns(fd);
      } else if (socket.listening) {
        accept(socket);
      } else if ((event.events & (EPOLLERR | EPOLLHUP)) != 0 || !serve(socket)) {
        sockets_.erase(found);
      }
    }
  }
}

}  // namespace
}  // namespace cofferdam::bench

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // NOLINT(cert-err33-c): sendfile(2) knows no MSG_NOSIGNAL
  (void)cofferdam::os::raise_descriptor_limit();
  cofferdam::bench::FarEnd far_end;
  for (int i = 1; i < argc; ++i) far_end.add(argv[i]);
  std::puts("ready");
  (void)std::fflush(stdout);
  far_end.run();
  return 0;
}
