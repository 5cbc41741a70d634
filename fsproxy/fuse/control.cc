#include "fsproxy/fuse/control.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "common/os/unique_fd.h"

namespace cofferdam::fsproxy {
namespace {

std::string response(const char* status, const Json& body) {
  const std::string text = canonical_json(body) + "\n";
  return std::string("HTTP/1.1 ") + status +
         "\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: " +
         std::to_string(text.size()) + "\r\n\r\n" + text;
}

}  // namespace

void answer_one(int listening_fd, const std::function<Json()>& stats) {
  constexpr std::size_t kMaxRequest = 4096;
  const os::UniqueFd peer(::accept4(listening_fd, nullptr, nullptr, SOCK_CLOEXEC));
  if (!peer) return;
  const struct timeval patience { 1, 0 };
  (void)::setsockopt(peer.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  (void)::setsockopt(peer.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  std::string request;
  char buffer[1024];
  while (request.find("\r\n\r\n") == std::string::npos && request.size() < kMaxRequest) {
    const ssize_t got = ::recv(peer.get(), buffer, sizeof buffer, 0);
    if (got <= 0) return;
    request.append(buffer, static_cast<std::size_t>(got));
  }
  const std::string line = request.substr(0, request.find("\r\n"));
  std::string reply;
  if (line == "GET /health HTTP/1.1") {
    reply = response("200 OK", {{"status", "ok"}});
  } else if (line == "GET /stats HTTP/1.1") {
    reply = response("200 OK", stats());
  } else {
    reply = response("404 Not Found", {{"error", "no such resource"}});
  }
  (void)::send(peer.get(), reply.data(), reply.size(), MSG_NOSIGNAL);
}

}  // namespace cofferdam::fsproxy
