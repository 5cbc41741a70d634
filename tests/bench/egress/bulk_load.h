// Throughput of tunnels, and idle memory's counterpart: bytes as fast as they go.
#pragma once

#include "tests/bench/egress/load_options.h"

namespace cofferdam::bench {

// `connections` tunnels, via=connect or via=plain, direction=down or up, for `ms` after a short
// run-up. Prints bytes and mb_per_second (10^6). What comes is thrown away in the kernel, what goes
// is sent from a file: neither is what is measured. Going up, what the far end has acknowledged is
// not waited for.
void run_bulk(const LoadOptions& options);

}  // namespace cofferdam::bench
