#include "egressproxy/relay.h"

#include <vector>

namespace cofferdam::egressproxy {
namespace {

using namespace asio::experimental::awaitable_operators;  // NOLINT(google-build-using-namespace)

constexpr std::size_t kBufferSize = 65536;

Async<void> copy(Stream& from, Stream& to, std::uint64_t& moved, Deadline& idle,
                 milliseconds limit) {
  if (!from.buffered().empty()) {
    const std::size_t size = from.buffered().size();
    if (co_await to.write(from.buffered())) {
      from.abort();
      to.abort();
      co_return;
    }
    from.consume(size);
    moved += size;
  }
  std::vector<char> buffer(kBufferSize);
  while (true) {
    const auto [error, count] = co_await from.read_some(buffer.data(), buffer.size());
    if (error == asio::error::eof) {
      to.shutdown_send();
      co_return;
    }
    if (error) break;
    idle.extend(limit);
    const std::string_view piece(buffer.data(), count);
    if (co_await to.write(piece)) break;
    idle.extend(limit);
    moved += count;
  }
  from.abort();
  to.abort();
}

}  // namespace

Async<Relayed> relay(Stream& downstream, Stream& upstream, milliseconds idle) {
  Relayed relayed;
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  Deadline deadline(executor, idle, [&] {
    downstream.abort();
    upstream.abort();
  });
  co_await (copy(downstream, upstream, relayed.up, deadline, idle) &&
            copy(upstream, downstream, relayed.down, deadline, idle));
  co_return relayed;
}

}  // namespace cofferdam::egressproxy
