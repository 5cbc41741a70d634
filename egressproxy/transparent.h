// Connections that were steered to the gate: the address that the workload wanted is turned back
// into the names that it was given out for, and what it says first may only narrow them.
#pragma once

#include <string>
#include <vector>

#include "egressproxy/pipeline.h"

namespace cofferdam::egressproxy {

// What an address may stand for: the names it was pinned to, and itself when a rule lists it.
std::vector<policy::Host> hosts_of(Pipeline& pipeline, const policy::IpAddress& address);

// Serves one connection to its end. `via` is for events: transparent, or connect for a tunnel to an
// address.
Async<void> serve_destination(Pipeline& pipeline, Stream& downstream, policy::IpAddress original,
                              std::uint16_t port, std::string via);

}  // namespace cofferdam::egressproxy
