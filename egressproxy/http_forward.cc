#include "egressproxy/http_forward.h"

#include "egressproxy/relay.h"

namespace cofferdam::egressproxy::http {
namespace {

using policy::Decision;
using policy::Reason;
using policy::Verdict;

constexpr std::size_t kMaxDrained = 1U << 20U;

bool is_refused_method(std::string_view method) {
  return method == "TRACE" || method == "TRACK" || method == "DEBUG";
}

Reason reason_of(const HeadError& error) {
  if (error.status == 408) return Reason::kDeadline;
  if (error.status == 417 || error.status == 501 || error.status == 505)
    return Reason::kUnsupported;
  return Reason::kMalformed;
}

}  // namespace

Async<void> close_gently(Stream& stream) {
  if (!stream.is_open()) co_return;
  stream.shutdown_send();
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  Deadline deadline(executor, seconds(2), [&stream] { stream.close(); });
  std::size_t drained = 0;
  while (drained < kMaxDrained && !deadline.expired()) {
    stream.consume(stream.buffered().size());
    if (co_await stream.read_more()) break;
    drained += stream.buffered().size();
  }
  stream.close();
}

void Forwarder::adopt(Upstream upstream) {
  upstream.stream->connection()->set_protocol(policy::Protocol::kHttp);
  upstream.stream->connection()->set_downstream(nullptr, Connection::Bond::kExchange);
  upstream_ = std::move(upstream);
}

EgressRecord Forwarder::new_record() const {
  EgressRecord record;
  record.protocol = "http";
  record.via = site_.via;
  record.port = site_.is_proxy ? std::uint16_t{0} : site_.port;
  if (!site_.is_proxy && !site_.hosts.empty()) record.host = site_.hosts.front().text();
  return record;
}

Async<Forwarder::Next> Forwarder::refuse(const RequestHead* head, const Refusal& refusal) {
  const bool keep = head != nullptr && head->keep_alive && head->framing.kind == BodyKind::kNone &&
                    head->minor == 1;
  const bool with_body = head == nullptr || head->method != "HEAD";
  const std::string text = write_refusal(refusal, keep, with_body);
  if (co_await downstream_.write(text)) co_return Next::kClose;
  co_return keep ? Next::kRead : Next::kClose;
}

// The head of the next request. Nothing when the connection is over or was refused.
Async<std::optional<RequestHead>> Forwarder::read_request() {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  Deadline deadline(executor, pipeline_.deadlines().keep_alive, [this] { downstream_.cancel(); });
  bool begun = false;
  while (true) {
    if (!begun && !downstream_.buffered().empty()) {
      begun = true;
      deadline.extend(pipeline_.deadlines().head);
    }
    const HeadScan scan = scan_head(downstream_.buffered());
    HeadError error = scan.error;
    if (scan.state == HeadScan::State::kComplete) {
      RequestResult parsed = parse_request(downstream_.buffered().substr(scan.skip, scan.length));
      downstream_.consume(scan.skip + scan.length);
      if (parsed.head) co_return std::move(parsed.head);
      error = std::move(parsed.error);
    } else if (scan.state == HeadScan::State::kNeedMore) {
      if (!co_await downstream_.read_more()) continue;
      if (!begun || !deadline.expired()) co_return std::nullopt;
      error = {408, "the header does not come to its end"};
    }
    EgressRecord record = new_record();
    record.decision = {Verdict::kDeny, reason_of(error), {}};
    pipeline_.recorder().record(record);
    Refusal refusal;
    refusal.status = error.status;
    refusal.decision = record.decision;
    refusal.host = record.host;
    refusal.port = record.port;
    refusal.protocol = "http";
    refusal.why = error.why;
    co_await refuse(nullptr, refusal);
    co_return std::nullopt;
  }
}

Async<std::optional<RequestHead>> Forwarder::run() {
  while (true) {
    auto head = co_await read_request();
    if (!head) break;
    if (!(head->method == "CONNECT" && site_.is_proxy)) downstream_.settle();
    const Next next = co_await serve_one(*head);
    if (next == Next::kConnect) co_return head;
    if (next == Next::kClose) break;
  }
  co_await close_gently(downstream_);
  co_return std::nullopt;
}

Async<Forwarder::Next> Forwarder::serve_one(RequestHead& head) {
  if (head.method == "CONNECT" && site_.is_proxy) co_return Next::kConnect;
  EgressRecord record = new_record();
  record.method = head.method;
  if (head.method == "CONNECT" || is_refused_method(head.method)) {
    record.decision = {Verdict::kDeny, Reason::kMethodNotAllowed, {}};
    pipeline_.recorder().record(record);
    Refusal refusal{405,         record.decision, record.host,
                    record.port, "http",          "this method is refused"};
    co_return co_await refuse(&head, refusal);
  }
  if (came_through(head.fields, pipeline_.via())) {
    record.decision = {Verdict::kDeny, Reason::kLoop, {}};
    pipeline_.recorder().record(record);
    Refusal refusal{508,         record.decision, record.host,
                    record.port, "http",          "the request has been here before"};
    co_return co_await refuse(&head, refusal);
  }
  TargetResult found = find_target(head, site_);
  if (!found.target) {
    record.decision = found.refusal.decision;
    record.host = found.refusal.host.empty() ? record.host : found.refusal.host;
    record.port = found.refusal.port;
    pipeline_.recorder().record(record);
    // What does not agree with itself may be the start of something else: nothing more is read.
    head.keep_alive = false;
    co_return co_await refuse(&head, found.refusal);
  }
  record.host = found.target->endpoint.host.text();
  record.port = found.target->endpoint.port;
  record.path = path_of(found.target->path);
  co_return co_await serve_target(head, *found.target, std::move(record));
}

// A kept connection whose server has ended it, or has said something that nobody asked.
bool Forwarder::is_stale(Stream& stream) {
  if (!stream.is_open() || !stream.buffered().empty()) return true;
  return stream.socket().peek().state != os::Moving::kWouldBlock;
}

Async<bool> Forwarder::reach(const Target& target, EgressRecord& record) {
  if (upstream_ && upstream_->endpoint == target.endpoint && !is_stale(*upstream_->stream)) {
    record.decision = pipeline_.policy().decide_name(target.endpoint, policy::Protocol::kHttp);
    record.address = upstream_->address;
    if (!pipeline_.recorder().can_record()) {
      record.decision = {Verdict::kDeny, Reason::kQuotaExceeded, {}};
    }
    co_return record.decision.allowed();
  }
  upstream_.reset();
  // A name that Host chose keeps the address that the workload dialled, if it is one of the
  // checked.
  Opened opened = co_await pipeline_.open(target.endpoint, policy::Protocol::kHttp, preferred_);
  record.decision = std::move(opened.decision);
  record.dropped = std::move(opened.dropped);
  record.address = opened.address;
  if (!opened.upstream) co_return false;
  upstream_.emplace(Upstream{target.endpoint, std::move(opened.upstream), opened.address});
  co_return true;
}

Async<Forwarder::Next> Forwarder::serve_target(const RequestHead& head, const Target& target,
                                               EgressRecord record) {
  const auto refuse_with = [&](const Decision& decision) {
    return Refusal{status_for(decision.reason), decision, record.host, record.port, "http", {}};
  };
  if (!co_await reach(target, record)) {
    pipeline_.recorder().record(record);
    const Refusal refusal = refuse_with(record.decision);
    co_return co_await refuse(&head, refusal);
  }
  const std::uint64_t left = pipeline_.bytes_left_up(record.decision);
  if (head.framing.kind == BodyKind::kLength && head.framing.length > left) {
    // Told before a byte of it is sent: half a body would be of no use.
    record.decision = {Verdict::kDeny, Reason::kQuotaExceeded, record.decision.rule};
    pipeline_.recorder().record(record);
    Refusal refusal = refuse_with(record.decision);
    refusal.status = 413;
    co_return co_await refuse(&head, refusal);
  }
  Stream& upstream = *upstream_->stream;
  upstream.connection()->set_downstream(&downstream_, Connection::Bond::kExchange);
  const std::uint64_t read_before = upstream.bytes_read();
  const std::uint64_t written_before = upstream.bytes_written();
  const std::string& via = pipeline_.via();
  const std::string request =
      write_request(head, authority_text(target.endpoint), target.path, via);
  const Exchange result =
      co_await exchange(downstream_, upstream, head, request, via, pipeline_.deadlines());
  record.bytes_up = upstream.bytes_written() - written_before;
  record.bytes_down = upstream.bytes_read() - read_before;
  if (result.upgraded) {
    upstream.connection()->set_downstream(&downstream_, Connection::Bond::kTunnel);
    co_await relay(downstream_, upstream, pipeline_.deadlines().tunnel);
    record.bytes_up = upstream.bytes_written() - written_before;
    record.bytes_down = upstream.bytes_read() - read_before;
  }
  upstream.connection()->set_downstream(nullptr, Connection::Bond::kExchange);
  // With the workload's side closed by our own end nothing has failed: what was allowed is told.
  if (!result.answered && downstream_.is_open()) {
    const Verdict verdict = result.status == 400 ? Verdict::kDeny : Verdict::kError;
    record.decision = {verdict, result.reason, record.decision.rule};
  }
  conclude_decision(record, upstream);
  pipeline_.recorder().record(record);
  if (!result.keep_upstream) upstream_.reset();
  if (result.answered) co_return result.keep_downstream ? Next::kRead : Next::kClose;
  RequestHead closing = head;
  closing.keep_alive = false;
  Refusal refusal = refuse_with(record.decision);
  if (record.decision.reason == Reason::kQuotaExceeded) {
    refusal.status = 413;
  } else if (record.decision.reason == result.reason) {
    refusal.status = result.status;
    refusal.why = result.why;
  }
  co_return co_await refuse(&closing, refusal);
}

}  // namespace cofferdam::egressproxy::http
