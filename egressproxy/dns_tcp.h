// DNS over TCP at the gate (RFC 7766).
#pragma once

#include "egressproxy/pipeline.h"

namespace cofferdam::egressproxy {

// One connection, until it ends or is silent for half a minute. Questions may be pipelined: each is
// answered as soon as its answer is there, so a slow name holds up nobody.
Async<void> serve_dns_tcp(Pipeline& pipeline, Stream& downstream);

}  // namespace cofferdam::egressproxy
