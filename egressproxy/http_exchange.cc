#include "egressproxy/http_exchange.h"

#include <algorithm>

#include "egressproxy/http_body.h"

namespace cofferdam::egressproxy::http {
namespace {

using namespace asio::experimental::awaitable_operators;  // NOLINT(google-build-using-namespace)
using policy::Reason;

// Informational responses before the final one; more is a server that keeps us busy.
constexpr int kMaxInformational = 32;

// One exchange. Both directions run at once and may end in any order; there is no total limit: a
// large body takes as long as it takes, and only silence ends it.
class Exchanging final {
 public:
  Exchanging(Stream& downstream, Stream& upstream, const RequestHead& head, std::string_view via,
             const Deadlines& deadlines)
      : downstream_(downstream),
        upstream_(upstream),
        head_(head),
        via_(via),
        deadlines_(deadlines) {}
  Async<Exchange> run(std::string_view request);

 private:
  Async<void> upload();
  Async<void> download();
  Async<std::optional<ResponseHead>> read_final_response();
  Async<std::optional<ResponseHead>> read_response();
  Async<bool> write_down(std::string_view text);
  void fail(Reason reason, int status, std::string why);
  // From here on the server is the one that is waited for.
  void await_response();
  void end_upload();

  Stream& downstream_;
  Stream& upstream_;
  const RequestHead& head_;
  std::string_view via_;
  const Deadlines& deadlines_;
  std::optional<asio::any_io_executor> executor_;
  std::optional<Deadline> response_deadline_;
  Exchange result_;
  bool upload_done_ = false;
  bool upload_whole_ = false;
  bool download_done_ = false;
};

// The first thing that goes wrong is what is told.
void Exchanging::fail(Reason reason, int status, std::string why) {
  if (result_.answered || result_.reason != Reason::kAllowed) return;
  result_.reason = reason;
  result_.status = status;
  result_.why = std::move(why);
}

void Exchanging::await_response() {
  if (result_.answered || download_done_) return;
  response_deadline_.emplace(*executor_, deadlines_.response, [this] { upstream_.cancel(); });
}

Async<void> Exchanging::upload() {
  const bool chunked = head_.framing.kind == BodyKind::kChunked;
  const Patience patience{deadlines_.upload, deadlines_.write, true};
  Carried carried = Carried::kCutSource;
  error_code error;
  if (head_.expects_continue && downstream_.buffered().empty()) {
    // Who asked to be told to go on is not slow before that.
    await_response();
    error = co_await downstream_.read_more();
    response_deadline_.reset();
  }
  if (!error)
    carried = co_await carry_body(downstream_, upstream_, head_.framing, chunked, patience);
  upload_done_ = true;
  upload_whole_ = carried == Carried::kWhole;
  if (upload_whole_ || carried == Carried::kCutSink) await_response();
  if (upload_whole_ || carried == Carried::kCutSink || download_done_) co_return;
  // The workload's side is broken, slow or not HTTP: the server must not take it for a whole
  // request.
  if (carried == Carried::kSlow) {
    fail(Reason::kDeadline, 408, "the request's body is too slow");
  } else {
    fail(Reason::kMalformed, 400, "the request's body ends early or is malformed");
  }
  upstream_.abort();
}

Async<std::optional<ResponseHead>> Exchanging::read_response() {
  while (true) {
    const HeadScan scan = scan_head(upstream_.buffered(), kMaxResponseHead);
    if (scan.state == HeadScan::State::kRefused) {
      fail(Reason::kMalformed, 502, "the server's answer is not HTTP: " + scan.error.why);
      co_return std::nullopt;
    }
    if (scan.state == HeadScan::State::kComplete) {
      Result<ResponseHead> head =
          parse_response(upstream_.buffered().substr(scan.skip, scan.length));
      upstream_.consume(scan.skip + scan.length);
      if (head) co_return std::move(*head);
      fail(Reason::kMalformed, 502, "the server's answer is not HTTP: " + head.error().message());
      co_return std::nullopt;
    }
    if (!co_await upstream_.read_more()) continue;
    if (response_deadline_ && response_deadline_->expired()) {
      fail(Reason::kDeadline, 504, "the server did not answer in time");
    } else if (!upstream_.buffered().empty()) {
      fail(Reason::kMalformed, 502, "the server's answer ends in its header");
    } else {
      fail(Reason::kConnectFailed, 502, "the server closed the connection without an answer");
    }
    co_return std::nullopt;
  }
}

// The final response; informational ones go down as they come.
Async<std::optional<ResponseHead>> Exchanging::read_final_response() {
  for (int informational = 0; informational <= kMaxInformational; ++informational) {
    auto response = co_await read_response();
    if (!response) co_return std::nullopt;
    if (response->status == 101 && !(head_.websocket && response->websocket)) {
      fail(Reason::kMalformed, 502, "the server changes to a protocol that nobody asked for");
      co_return std::nullopt;
    }
    if (response->status >= 200 || response->status == 101) co_return response;
    if (response_deadline_) response_deadline_->extend(deadlines_.response);
    if (head_.minor == 0) continue;
    const std::string text = write_response(*response, {}, true, head_.minor, via_);
    if (!co_await write_down(text)) co_return std::nullopt;
  }
  fail(Reason::kMalformed, 502, "the server does not come to its final answer");
  co_return std::nullopt;
}

Async<bool> Exchanging::write_down(std::string_view text) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  Deadline deadline(executor, deadlines_.write, [this] { downstream_.cancel(); });
  const error_code error = co_await downstream_.write(text);
  if (!error) co_return true;
  // Nobody is there to be told.
  fail(Reason::kDeadline, 504, "the client takes no answer");
  co_return false;
}

// The server has said its last word; what of the request is still on its way is of no use. It may
// wait for the workload, or for a server that has stopped reading.
void Exchanging::end_upload() {
  if (upload_done_) return;
  downstream_.cancel();
  upstream_.abort();
}

Async<void> Exchanging::download() {
  const auto response = co_await read_final_response();
  response_deadline_.reset();
  if (!response) {
    download_done_ = true;
    end_upload();
    co_return;
  }
  result_.answered = true;
  result_.upgraded = response->status == 101;
  const Framing framing = response_framing(*response, head_.method);
  const bool chunked = framing.kind == BodyKind::kChunked && head_.minor == 1;
  const bool until_close = framing.kind == BodyKind::kUntilClose ||
                           (framing.kind == BodyKind::kChunked && head_.minor == 0);
  result_.keep_downstream = head_.keep_alive && !until_close && upload_done_ && upload_whole_;
  Framing shown = framing;
  if (until_close) shown.kind = BodyKind::kUntilClose;
  std::string text = write_response(*response, shown, result_.keep_downstream || result_.upgraded,
                                    head_.minor, via_);
  // What of the body has come with the head goes with it: one packet, one turn of the client.
  Framing rest = framing;
  if (rest.kind == BodyKind::kLength) {
    const auto size =
        static_cast<std::size_t>(std::min<std::uint64_t>(rest.length, upstream_.buffered().size()));
    text += upstream_.buffered().substr(0, size);
    upstream_.consume(size);
    rest.length -= size;
    if (rest.length == 0) rest.kind = BodyKind::kNone;
  }
  Carried carried = Carried::kCutSink;
  if (co_await write_down(text)) {
    const Patience patience{deadlines_.body, deadlines_.write};
    carried = co_await carry_body(upstream_, downstream_, rest, chunked, patience);
  }
  download_done_ = true;
  if (carried != Carried::kWhole) {
    downstream_.abort();  // never a clean end of half a body
    result_.keep_downstream = false;
  }
  result_.keep_upstream = carried == Carried::kWhole && response->keep_alive && !until_close &&
                          head_.minor == 1 && upload_done_ && upload_whole_;
  end_upload();
}

Async<Exchange> Exchanging::run(std::string_view request) {
  executor_ = co_await asio::this_coro::executor;
  response_deadline_.emplace(*executor_, deadlines_.write, [this] { upstream_.cancel(); });
  const error_code error = co_await upstream_.write(request);
  response_deadline_.reset();
  if (error) {
    fail(Reason::kConnectFailed, 502, "the server takes no request");
    co_return std::move(result_);
  }
  if (head_.framing.kind == BodyKind::kNone) {
    upload_done_ = upload_whole_ = true;
    await_response();
    co_await download();
  } else {
    co_await (upload() && download());
  }
  co_return std::move(result_);
}

}  // namespace

Async<Exchange> exchange(Stream& downstream, Stream& upstream, const RequestHead& head,
                         std::string_view request, std::string_view via,
                         const Deadlines& deadlines) {
  Exchanging exchanging(downstream, upstream, head, via, deadlines);
  co_return co_await exchanging.run(request);
}

}  // namespace cofferdam::egressproxy::http
