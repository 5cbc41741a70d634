#include "egressproxy/session.h"

#include "egressproxy/connect_tunnel.h"
#include "egressproxy/first_bytes.h"
#include "egressproxy/http_forward.h"
#include "egressproxy/socks_session.h"
#include "egressproxy/transparent.h"

namespace cofferdam::egressproxy {
namespace {

using policy::Reason;
using policy::Verdict;

void record_refusal(Pipeline& pipeline, const char* via, Reason reason) {
  EgressRecord record;
  record.via = via;
  record.decision = {Verdict::kDeny, reason, {}};
  pipeline.recorder().record(record);
}

}  // namespace

Async<void> serve_explicit(Pipeline& pipeline, Stream& downstream) {
  const Opening first = co_await read_first_byte(downstream, pipeline.deadlines().keep_alive);
  switch (first) {
    case Opening::kNeedMore:
      downstream.close();
      co_return;
    case Opening::kSocks5:
      co_await serve_socks5(pipeline, downstream);
      co_return;
    case Opening::kSocks4:
      co_await refuse_socks4(pipeline, downstream);
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
