#include "egressproxy/control.h"

#include <charconv>

#include "common/log/diagnostics.h"
#include "common/os/pipes.h"
#include "common/os/sockets.h"
#include "egressproxy/http_head.h"

namespace cofferdam::egressproxy {
namespace {

using asio::local::stream_protocol;

constexpr std::size_t kSpares = 4;
constexpr milliseconds kAcceptPause{50};
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr std::string_view kRequests =
    "GET /health, GET /stats, GET /connections, GET /metrics, PUT /policy or DELETE "
    "/connections/ID";

std::string_view phrase_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Bad Request";
  }
}

std::string json_text(const Json& json) {
  return canonical_json(json) + "\n";
}

std::string error_text(std::string_view why) {
  return json_text({{"error", why}});
}

}  // namespace

Result<std::unique_ptr<Control>> Control::adopt(asio::io_context& context, int fd,
                                                std::uint32_t owner) {
  if (!os::is_listening_unix(fd)) return Error("--control-fd: not a listening Unix stream socket");
  TRY(os::set_cloexec(fd, true));
  std::unique_ptr<Control> control(new Control(context, owner));
  error_code error;
  control->acceptor_.assign(stream_protocol(), fd, error);
  if (!error) control->acceptor_.non_blocking(true, error);
  if (error) return Error("--control-fd: " + error.message());
  control->spares_.emplace(fd, kSpares);
  return control;
}

void Control::start(const StatusSources& sources, LivePolicy& policy) {
  sources_ = &sources;
  policy_ = &policy;
  asio::co_spawn(context_, accept_all(), asio::detached);
}

void Control::stop() {
  error_code ignored;
  acceptor_.close(ignored);
  spares_->clear();
  place_free_.cancel();
}

Async<void> Control::accept_all() {
  while (acceptor_.is_open()) {
    if (clients_ >= kMaxClients) {
      place_free_.expires_at(asio::steady_timer::time_point::max());
      co_await place_free_.async_wait(kNoThrow);
      continue;
    }
    auto [error, socket] = co_await acceptor_.async_accept(kNoThrow);
    if (error == asio::error::operation_aborted || error == asio::error::bad_descriptor) co_return;
    // The workload's connections have taken every descriptor: this one has its own.
    if (error == asio::error::no_descriptors && spares_->give_up_one()) {
      acceptor_.accept(socket, error);
    }
    if (error) {
      spares_->refill();
      co_await sleep_for(kAcceptPause);
      continue;
    }
    ++clients_;
    asio::co_spawn(context_, serve(std::move(socket)), asio::detached);
  }
}

Async<void> Control::serve(Socket socket) {
  co_await converse(socket);
  error_code ignored;
  socket.close(ignored);
  spares_->refill();
  --clients_;
  place_free_.cancel();
}

Async<void> Control::converse(Socket& socket) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  Deadline deadline(executor, kTotalTime, [&socket] {
    error_code ignored;
    socket.close(ignored);
  });
  const auto peer = os::peer_uid(socket.native_handle());
  Answer result;
  if (!peer.ok() || *peer != owner_) {
    result = {403, "application/json", error_text("this socket is its owner's alone")};
  } else {
    Asked asked = co_await read_request(socket, deadline);
    if (!asked.request && asked.refusal.status == 0) co_return;
    result = asked.request ? answer(*asked.request) : std::move(asked.refusal);
  }
  const std::string text = "HTTP/1.1 " + std::to_string(result.status) + " " +
                           std::string(phrase_of(result.status)) +
                           "\r\nContent-Type: " + result.type +
                           "\r\nContent-Length: " + std::to_string(result.body.size()) +
                           "\r\nConnection: close\r\n\r\n" + result.body;
  deadline.extend(kTotalTime);
  co_await asio::async_write(socket, asio::buffer(text), kNoThrow);
}

Async<Control::Asked> Control::read_request(Socket& socket, Deadline& deadline) {
  Asked asked;
  asked.refusal.status = 0;
  std::string bytes;
  std::array<char, 16384> buffer{};
  http::HeadScan scan = http::scan_head(bytes);
  while (scan.state == http::HeadScan::State::kNeedMore) {
    const auto [error, count] = co_await socket.async_read_some(asio::buffer(buffer), kNoThrow);
    if (error) co_return asked;
    bytes.append(buffer.data(), count);
    scan = http::scan_head(bytes);
  }
  const auto refuse = [&asked](int status, std::string_view why) {
    asked.refusal = {status, "application/json", error_text(why)};
    return std::move(asked);
  };
  if (scan.state == http::HeadScan::State::kRefused) co_return refuse(400, scan.error.why);
  const http::RequestResult parsed =
      http::parse_request(std::string_view(bytes).substr(scan.skip, scan.length));
  if (!parsed.head) co_return refuse(400, parsed.error.why);
  const http::Framing framing = parsed.head->framing;
  if (framing.kind == http::BodyKind::kChunked) {
    co_return refuse(411, "a body needs Content-Length");
  }
  if (framing.length > kMaxBody) co_return refuse(413, "the body is too large");
  Request request{parsed.head->method, parsed.head->target, bytes.substr(scan.skip + scan.length)};
  if (parsed.head->expects_continue && request.body.size() < framing.length) {
    const std::string text(kContinue);
    co_await asio::async_write(socket, asio::buffer(text), kNoThrow);
  }
  deadline.extend(kTotalTime);
  while (request.body.size() < framing.length) {
    const auto [error, count] = co_await socket.async_read_some(asio::buffer(buffer), kNoThrow);
    if (error) co_return asked;
    request.body.append(buffer.data(), count);
  }
  if (request.body.size() > framing.length) co_return refuse(400, "more bytes than the request");
  asked.request = std::move(request);
  co_return asked;
}

Control::Answer Control::replace_policy(const std::string& text) {
  const auto replaced = policy_->replace(text);
  if (!replaced.ok()) {
    spdlog::warn("a policy was refused, the old one stays: {}", replaced.error().message());
    return {400, "application/json", error_text(replaced.error().message())};
  }
  return {200, "application/json",
          json_text({{"revision", replaced->revision}, {"connections_ended", replaced->ended}})};
}

Control::Answer Control::end_connection(std::string_view id) {
  std::uint64_t number = 0;
  const auto [end, code] = std::from_chars(id.data(), id.data() + id.size(), number);
  const bool is_number = code == std::errc() && end == id.data() + id.size();
  policy::Decision why{policy::Verdict::kDeny, policy::Reason::kPolicyRevoked, {}};
  if (!is_number || !sources_->pipeline.connections().end(number, std::move(why))) {
    return {404, "application/json", error_text("no such connection")};
  }
  return {200, "application/json", json_text({{"ended", number}})};
}

Control::Answer Control::answer(const Request& request) {
  constexpr std::string_view kConnection = "/connections/";
  if (request.target == "/policy") {
    if (request.method == "PUT") return replace_policy(request.body);
    return {405, "application/json", error_text("PUT a policy")};
  }
  if (request.target.starts_with(kConnection)) {
    if (request.method == "DELETE") {
      return end_connection(std::string_view(request.target).substr(kConnection.size()));
    }
    return {405, "application/json", error_text("DELETE ends a connection")};
  }
  if (request.method != "GET") return {405, "application/json", error_text(kRequests)};
  if (request.target == "/health") {
    const bool healthy = sources_->pipeline.recorder().can_record();
    return {
        healthy ? 200 : 503, "application/json",
        json_text({{"status", healthy ? "ok" : "cannot record"}, {"version", COFFERDAM_VERSION}})};
  }
  if (request.target == "/stats")
    return {200, "application/json", json_text(stats_report(*sources_))};
  if (request.target == "/connections") {
    return {200, "application/json", json_text(connections_report(*sources_))};
  }
  if (request.target == "/metrics") {
    return {200, "text/plain; version=0.0.4; charset=utf-8", metrics_report(*sources_)};
  }
  return {404, "application/json", error_text(kRequests)};
}

}  // namespace cofferdam::egressproxy
