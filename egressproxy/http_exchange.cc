#include "egressproxy/http_exchange.h"

#include "egressproxy/http_body.h"

namespace cofferdam::egressproxy::http {
namespace {

using namespace asio::experimental::awaitable_operators;  // NOLINT(google-build-using-namespace)
using policy::Reason;

// No total limits: a large download takes as long as it takes. Only silence ends it.
constexpr milliseconds kBodyIdle = std::chrono::minutes(2);
constexpr milliseconds kResponseWait = std::chrono::minutes(5);

struct State {
  Exchange result;
  bool upload_done = false;
  bool upload_whole = false;
  bool download_done = false;
};

Async<void> upload(Stream& downstream, Stream& upstream, const RequestHead& head, State& state) {
  const bool chunked = head.framing.kind == BodyKind::kChunked;
  const Carried carried =
      co_await carry_body(downstream, upstream, head.framing, chunked, kBodyIdle);
  state.upload_done = true;
  state.upload_whole = carried == Carried::kWhole;
  if (carried != Carried::kCutSource || state.download_done) co_return;
  // The workload's side is broken or is not HTTP: the server must not take it for a whole request.
  state.result.reason = Reason::kMalformed;
  upstream.abort();
}

Async<Result<ResponseHead>> read_response(Stream& upstream) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  Deadline deadline(executor, kResponseWait, [&upstream] { upstream.close(); });
  while (true) {
    const HeadScan scan = scan_head(upstream.buffered(), kMaxResponseHead);
    if (scan.state == HeadScan::State::kRefused) co_return Error(scan.error.why);
    if (scan.state == HeadScan::State::kComplete) {
      const std::string head(upstream.buffered().substr(scan.skip, scan.length));
      upstream.consume(scan.skip + scan.length);
      co_return parse_response(head);
    }
    if (const error_code error = co_await upstream.read_more()) co_return Error(error.message());
  }
}

// The final response; informational ones go down as they come.
Async<std::optional<ResponseHead>> read_final_response(Stream& downstream, Stream& upstream,
                                                       const RequestHead& head) {
  while (true) {
    Result<ResponseHead> response = co_await read_response(upstream);
    if (!response) co_return std::nullopt;
    if (response->status == 101 && !head.websocket) co_return std::nullopt;
    if (response->status >= 200 || response->status == 101) co_return std::move(*response);
    if (head.minor == 0) continue;
    const std::string text = write_response(*response, {}, true, head.minor);
    if (co_await downstream.write(text)) co_return std::nullopt;
  }
}

// The server has said its last word; what of the request is still on its way is of no use. It may
// wait for the workload, or for a server that has stopped reading.
void end_upload(Stream& downstream, Stream& upstream, const State& state) {
  if (state.upload_done) return;
  downstream.cancel();
  upstream.abort();
}

Async<void> download(Stream& downstream, Stream& upstream, const RequestHead& head, State& state) {
  Exchange& result = state.result;
  const auto response = co_await read_final_response(downstream, upstream, head);
  if (!response) {
    if (result.reason == Reason::kAllowed) result.reason = Reason::kConnectFailed;
    state.download_done = true;
    end_upload(downstream, upstream, state);
    co_return;
  }
  result.answered = true;
  result.upgraded = response->status == 101;
  const Framing framing = response_framing(*response, head.method);
  const bool chunked = framing.kind == BodyKind::kChunked && head.minor == 1;
  const bool until_close = framing.kind == BodyKind::kUntilClose ||
                           (framing.kind == BodyKind::kChunked && head.minor == 0);
  result.keep_downstream =
      head.keep_alive && !until_close && state.upload_done && state.upload_whole;
  Framing shown = framing;
  if (until_close) shown.kind = BodyKind::kUntilClose;
  Carried carried = Carried::kCutSink;
  if (!co_await downstream.write(write_response(
          *response, shown, result.keep_downstream || result.upgraded, head.minor))) {
    carried = co_await carry_body(upstream, downstream, framing, chunked, kBodyIdle);
  }
  state.download_done = true;
  if (carried == Carried::kCutSource) downstream.abort();  // never a clean end of half a body
  if (carried != Carried::kWhole) result.keep_downstream = false;
  result.keep_upstream = carried == Carried::kWhole && response->keep_alive && !until_close &&
                         head.minor == 1 && state.upload_done && state.upload_whole;
  end_upload(downstream, upstream, state);
}

}  // namespace

Async<Exchange> exchange(Stream& downstream, Stream& upstream, const RequestHead& head,
                         std::string_view authority, std::string_view origin_target) {
  State state;
  const std::string text = write_request(head, authority, origin_target);
  if (co_await upstream.write(text)) {
    state.result.reason = Reason::kConnectFailed;
    co_return state.result;
  }
  if (head.framing.kind == BodyKind::kNone) {
    state.upload_done = state.upload_whole = true;
    co_await download(downstream, upstream, head, state);
  } else {
    co_await (upload(downstream, upstream, head, state) &&
              download(downstream, upstream, head, state));
  }
  co_return state.result;
}

}  // namespace cofferdam::egressproxy::http
