// Questions to a DNS server over UDP.
#pragma once

#include "tests/bench/egress/load_options.h"

namespace cofferdam::bench {

// Asks `to` for the A records of `name`, in which every '#' is replaced by digits of a running
// number, for `ms` with `window` questions on their way; or `rate` a second. Prints count,
// per_second, lost, wrong (another rcode than `rcode`), p50_us, p99_us.
void run_dns(const LoadOptions& options);

}  // namespace cofferdam::bench
