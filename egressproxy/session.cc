#include "egressproxy/session.h"

#include "egressproxy/connect_tunnel.h"
#include "egressproxy/first_bytes.h"
#include "egressproxy/http_forward.h"
#include "egressproxy/transparent.h"

namespace cofferdam::egressproxy {
namespace {

using policy::Reason;
using policy::Verdict;

constexpr milliseconds kFirstBytes = seconds(90);

void record_refusal(Pipeline& pipeline, const char* via, Reason reason) {
  EgressRecord record;
  record.via = via;
  record.decision = {Verdict::kDeny, reason, {}};
  pipeline.recorder().record(record);
}

// RFC 1928: no method is acceptable. SOCKS4 has no answer that fits.
Async<void> refuse_socks(Pipeline& pipeline, Stream& downstream, bool version5) {
  record_refusal(pipeline, "socks", Reason::kUnsupported);
  if (version5) (void)co_await downstream.write(std::string_view("\x05\xff", 2));
  co_await http::close_gently(downstream);
}

}  // namespace

Async<void> serve_explicit(Pipeline& pipeline, Stream& downstream) {
  const FirstBytes first = co_await read_first_bytes(downstream, kFirstBytes);
  switch (first.opening) {
    case Opening::kNeedMore:
      downstream.close();
      co_return;
    case Opening::kSocks5:
    case Opening::kSocks4:
      co_await refuse_socks(pipeline, downstream, first.opening == Opening::kSocks5);
      co_return;
    default:
      break;
  }
  // Everything else is for the HTTP parser to refuse in words.
  http::Site site{"http", true, {}, 80};
  http::Forwarder forwarder(pipeline, downstream, std::move(site));
  auto connect = co_await forwarder.run();
  if (connect) co_await serve_connect(pipeline, downstream, std::move(*connect));
}

Async<void> serve_transparent(Pipeline& pipeline, Stream& downstream,
                              std::optional<os::SocketAddress> original) {
  if (!original || original->is_loopback() || original->scope != 0 || original->port == 0) {
    record_refusal(pipeline, "transparent", Reason::kLoop);
    downstream.abort();
    co_return;
  }
  co_await serve_destination(pipeline, downstream, from_os(*original), original->port,
                             "transparent");
}

}  // namespace cofferdam::egressproxy
