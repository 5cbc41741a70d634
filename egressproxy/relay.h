// Relay: bytes between two connections, unchanged, both ways at once, each end half-closing alone.
//
// A tunnel that is idle holds no buffer: it waits until there is something to read, borrows a
// buffer, reads, writes and gives it back; what the receiver does not take keeps the buffer, and
// nothing more is read until it has gone (backpressure). A way that stays full goes over to
// splice(2).
#pragma once

#include <cstdint>

#include "egressproxy/events.h"
#include "egressproxy/stream.h"

namespace cofferdam::egressproxy {

struct Relayed {
  std::uint64_t up = 0;    // bytes from the workload to the server
  std::uint64_t down = 0;  // and back
};

// Ends when both directions have ended, one fails (both are then reset), or neither has moved for
// `idle`. Once one direction has ended, which is also how an end that is gone looks, the other may
// be silent for a sixth of it. What the streams have buffered goes first. Both must live until it
// ends; closing them ends it.
Async<Relayed> relay(Stream& downstream, Stream& upstream, milliseconds idle);

// A tunnel that is decided and dialled, and the record of it.
struct Handover {
  std::unique_ptr<Stream> upstream;
  EgressRecord record;  // what was moved is added at the end
  milliseconds idle;
};

// Relays, and records it at the end.
Async<void> carry(Recorder& recorder, Stream& downstream, std::unique_ptr<Handover> handover);

}  // namespace cofferdam::egressproxy
