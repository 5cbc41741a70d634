// One accepted connection: which conversation it is, and who serves it.
#pragma once

#include <optional>

#include "egressproxy/pipeline.h"

namespace cofferdam::egressproxy {

// The explicit port: HTTP, CONNECT and SOCKS5, told apart by the first byte.
Async<void> serve_explicit(Pipeline& pipeline, Stream& downstream);

// The port that connections are steered to. `original` none: nothing steered it, so it was opened
// to the gate itself.
Async<void> serve_transparent(Pipeline& pipeline, Stream& downstream,
                              std::optional<os::SocketAddress> original);

}  // namespace cofferdam::egressproxy
