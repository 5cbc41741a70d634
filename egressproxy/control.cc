#include "egressproxy/control.h"

#include "common/os/pipes.h"
#include "egressproxy/http_head.h"

namespace cofferdam::egressproxy {
namespace {

using asio::local::stream_protocol;

constexpr std::size_t kMaxRequest = 8192;

std::string response(int status, std::string_view phrase, const Json& body) {
  const std::string text = canonical_json(body) + "\n";
  return "HTTP/1.1 " + std::to_string(status) + " " + std::string(phrase) +
         "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(text.size()) +
         "\r\nConnection: close\r\n\r\n" + text;
}

}  // namespace

Result<std::unique_ptr<Control>> Control::adopt(asio::io_context& context, int fd) {
  if (!os::is_listening_unix(fd)) return Error("--control-fd: not a listening Unix stream socket");
  TRY(os::set_cloexec(fd, true));
  std::unique_ptr<Control> control(new Control(context));
  error_code error;
  control->acceptor_.assign(stream_protocol(), fd, error);
  if (!error) control->acceptor_.non_blocking(true, error);
  if (error) return Error("--control-fd: " + error.message());
  return control;
}

void Control::start(const Server& server, Pipeline& pipeline, const Resolver& resolver) {
  server_ = &server;
  pipeline_ = &pipeline;
  resolver_ = &resolver;
  asio::co_spawn(context_, accept_all(), asio::detached);
}

void Control::stop() {
  error_code ignored;
  acceptor_.close(ignored);
}

Async<void> Control::accept_all() {
  while (acceptor_.is_open()) {
    auto [error, socket] = co_await acceptor_.async_accept(kNoThrow);
    if (error == asio::error::operation_aborted || error == asio::error::bad_descriptor) co_return;
    if (error) {
      co_await sleep_for(milliseconds(50));
      continue;
    }
    asio::co_spawn(context_, serve(std::move(socket)), asio::detached);
  }
}

Async<void> Control::serve(stream_protocol::socket socket) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  Deadline deadline(executor, seconds(5), [&socket] { socket.close(); });
  std::string request;
  while (request.find("\r\n\r\n") == std::string::npos) {
    if (request.size() >= kMaxRequest) co_return;
    std::array<char, 1024> buffer{};
    const auto [error, count] = co_await socket.async_read_some(asio::buffer(buffer), kNoThrow);
    if (error) co_return;
    request.append(buffer.data(), count);
  }
  const std::string text = answer(request.substr(0, request.find("\r\n\r\n") + 4));
  co_await asio::async_write(socket, asio::buffer(text), kNoThrow);
}

std::string Control::answer(std::string_view head) const {
  const http::RequestResult request = http::parse_request(head);
  if (!request.head) return response(400, "Bad Request", {{"error", request.error.why}});
  if (request.head->method != "GET") {
    return response(405, "Method Not Allowed", {{"error", "only GET is understood"}});
  }
  if (request.head->target == "/health") {
    const bool healthy = pipeline_->recorder().can_record();
    return response(healthy ? 200 : 503, healthy ? "OK" : "Service Unavailable",
                    {{"status", healthy ? "ok" : "cannot record"}, {"version", COFFERDAM_VERSION}});
  }
  if (request.head->target == "/stats") {
    const Counters& counters = pipeline_->recorder().counters();
    return response(200, "OK",
                    {{"accepted", server_->accepted()},
                     {"sessions", server_->sessions()},
                     {"allowed", counters.allowed},
                     {"denied", counters.denied},
                     {"failed", counters.failed},
                     {"dns_questions", counters.dns_questions},
                     {"dns_questions_sent", resolver_->questions_sent()},
                     {"bytes_up", counters.bytes_up},
                     {"bytes_down", counters.bytes_down},
                     {"pinned_addresses", pipeline_->pins().size()}});
  }
  return response(404, "Not Found", {{"error", "GET /health or GET /stats"}});
}

}  // namespace cofferdam::egressproxy
