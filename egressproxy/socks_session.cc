#include "egressproxy/socks_session.h"

#include "egressproxy/http_forward.h"
#include "egressproxy/socks5.h"
#include "egressproxy/tunnel.h"

namespace cofferdam::egressproxy {
namespace {

using policy::Reason;
using policy::Verdict;

std::string refused(const Refusal& refusal) {
  return socks::write_reply(socks::reply_for(refusal.decision.reason));
}

class SocksSession final {
 public:
  SocksSession(Pipeline& pipeline, Stream& downstream)
      : pipeline_(pipeline), downstream_(downstream) {}
  Async<void> run();
  Async<void> refuse(Reason reason, const std::string& last);

 private:
  // The endpoint asked for; nothing when that was the end of it.
  Async<std::optional<policy::Endpoint>> shake_hands();
  // Read until the message is whole or refused. kNeedMore: the client is gone or slow.
  Async<void> read_greeting(socks::Greeting& greeting);
  Async<void> read_request(socks::Request& request);
  void record_refusal(Reason reason);

  Pipeline& pipeline_;
  Stream& downstream_;
};

void SocksSession::record_refusal(Reason reason) {
  EgressRecord record;
  record.via = "socks";
  record.decision = {Verdict::kDeny, reason, {}};
  pipeline_.recorder().record(record);
}

// Records, says `last`, and ends the connection.
Async<void> SocksSession::refuse(Reason reason, const std::string& last) {
  record_refusal(reason);
  const error_code error = co_await downstream_.write(last);
  if (!error) co_await http::close_gently(downstream_);
}

Async<void> SocksSession::read_greeting(socks::Greeting& greeting) {
  while (true) {
    greeting = socks::parse_greeting(downstream_.buffered());
    if (greeting.state != socks::State::kNeedMore) co_return;
    const error_code error = co_await downstream_.read_more();
    if (error) co_return;
  }
}

Async<void> SocksSession::read_request(socks::Request& request) {
  while (true) {
    request = socks::parse_request(downstream_.buffered());
    if (request.state != socks::State::kNeedMore) co_return;
    const error_code error = co_await downstream_.read_more();
    if (error) co_return;
  }
}

Async<std::optional<policy::Endpoint>> SocksSession::shake_hands() {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  Deadline deadline(executor, pipeline_.deadlines().head, [this] { downstream_.cancel(); });
  socks::Greeting greeting;
  socks::Request request;
  co_await read_greeting(greeting);
  if (greeting.state == socks::State::kComplete) {
    downstream_.consume(greeting.length);
    const std::string method(socks::write_method(greeting.no_authentication));
    if (!greeting.no_authentication) {
      co_await refuse(Reason::kUnsupported, method);
      co_return std::nullopt;
    }
    if (co_await downstream_.write(method)) co_return std::nullopt;
    co_await read_request(request);
  }
  if (request.state == socks::State::kNeedMore) {
    record_refusal(deadline.expired() ? Reason::kDeadline : Reason::kMalformed);
    downstream_.close();
    co_return std::nullopt;
  }
  if (request.state == socks::State::kRefused) {
    const std::string reply = socks::write_reply(request.reply);
    co_await refuse(request.reason, reply);
    co_return std::nullopt;
  }
  downstream_.consume(request.length);
  co_return std::move(request.endpoint);
}

Async<void> SocksSession::run() {
  auto endpoint = co_await shake_hands();
  if (!endpoint) co_return;
  const TunnelWords words{socks::write_reply(socks::Reply::kSucceeded), &refused};
  std::string via = "socks";
  co_await serve_tunnel(pipeline_, downstream_, words, std::move(*endpoint), std::move(via));
}

}  // namespace

Async<void> serve_socks5(Pipeline& pipeline, Stream& downstream) {
  SocksSession session(pipeline, downstream);
  co_await session.run();
}

Async<void> refuse_socks4(Pipeline& pipeline, Stream& downstream) {
  SocksSession session(pipeline, downstream);
  const std::string nothing;
  co_await session.refuse(Reason::kUnsupported, nothing);
}

}  // namespace cofferdam::egressproxy
