#include "fsproxy/fuse/control.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cctype>
#include <charconv>
#include <cstdint>

#include "common/os/sockets.h"
#include "common/os/unique_fd.h"

namespace cofferdam::fsproxy {
namespace {

std::string response(const Answer& answer) {
  const std::string text = canonical_json(answer.body) + "\n";
  return "HTTP/1.1 " + answer.status +
         "\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: " +
         std::to_string(text.size()) + "\r\n\r\n" + text;
}

// The value of the header, 0 without one; what is no number is more than any body has.
std::size_t content_length(std::string head) {
  for (char& c : head) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  constexpr std::string_view kHeader = "\r\ncontent-length:";
  std::size_t at = head.find(kHeader);
  if (at == std::string::npos) return 0;
  at = head.find_first_not_of(' ', at + kHeader.size());
  std::size_t value = 0;
  const auto [end, code] = std::from_chars(head.data() + at, head.data() + head.size(), value);
  return code == std::errc() ? value : SIZE_MAX;
}

}  // namespace

void answer_one(int listening_fd, const Resources& resources) {
  constexpr std::size_t kMaxRequest = 4096;
  const os::UniqueFd peer(::accept4(listening_fd, nullptr, nullptr, SOCK_CLOEXEC));
  if (!peer) return;
  const auto uid = os::peer_uid(peer.get());
  if (!uid.ok() || *uid != ::geteuid()) {
    const std::string refusal =
        response({"403 Forbidden", {{"error", "this socket is its owner's alone"}}});
    (void)::send(peer.get(), refusal.data(), refusal.size(), MSG_NOSIGNAL);
    return;
  }
  const struct timeval patience { 1, 0 };
  (void)::setsockopt(peer.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  (void)::setsockopt(peer.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  std::string request;
  char buffer[1024];
  const auto read_more = [&] {
    const ssize_t got = ::recv(peer.get(), buffer, sizeof buffer, 0);
    if (got > 0) request.append(buffer, static_cast<std::size_t>(got));
    return got > 0;
  };
  while (request.find("\r\n\r\n") == std::string::npos) {
    if (request.size() >= kMaxRequest || !read_more()) return;
  }
  const std::size_t head = request.find("\r\n\r\n") + 4;
  const std::size_t length = content_length(request.substr(0, head));
  Answer answer{"404 Not Found", {{"error", "no such resource"}}};
  const std::string line = request.substr(0, request.find("\r\n"));
  if (length > kMaxRequest) {
    answer = {"413 Content Too Large", {{"error", "the body is too long"}}};
  } else if (line == "GET /health HTTP/1.1") {
    answer = {"200 OK", {{"status", "ok"}}};
  } else if (line == "GET /stats HTTP/1.1") {
    answer = {"200 OK", resources.stats()};
  } else if (line == "POST /checkpoint HTTP/1.1") {
    while (request.size() < head + length) {
      if (!read_more()) return;
    }
    answer = resources.checkpoint(request.substr(head, length));
  }
  const std::string reply = response(answer);
  (void)::send(peer.get(), reply.data(), reply.size(), MSG_NOSIGNAL);
}

}  // namespace cofferdam::fsproxy
