// Tunnels that a client asks for by name or address (CONNECT, SOCKS5): the endpoint is decided and
// dialled, then the first bytes inside are verified.
#pragma once

#include <string>

#include "egressproxy/pipeline.h"
#include "egressproxy/refusal.h"

namespace cofferdam::egressproxy {

// What a tunnel's client is told, in the words of its protocol: bytes to write. (Not an interface:
// behind a polymorphic class GCC 12 lays out the frames of coroutines wrongly.)
struct TunnelWords {
  std::string established;                         // the next bytes are the tunnel's
  std::string (*refused)(const Refusal& refusal);  // the last word on the connection
};

// Serves the connection to its end and records it. `via` is for events.
Async<void> serve_tunnel(Pipeline& pipeline, Stream& downstream, const TunnelWords& words,
                         policy::Endpoint endpoint, std::string via);

}  // namespace cofferdam::egressproxy
