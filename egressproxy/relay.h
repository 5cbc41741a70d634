// Relay: bytes between two connections, unchanged, both ways at once, each end half-closing alone.
#pragma once

#include <cstdint>

#include "egressproxy/stream.h"

namespace cofferdam::egressproxy {

struct Relayed {
  std::uint64_t up = 0;    // bytes from the workload to the server
  std::uint64_t down = 0;  // and back
};

// Ends when both directions have ended, one fails (the other is then reset), or neither has moved
// for `idle`. What the streams have buffered goes first.
Async<Relayed> relay(Stream& downstream, Stream& upstream, milliseconds idle);

}  // namespace cofferdam::egressproxy
