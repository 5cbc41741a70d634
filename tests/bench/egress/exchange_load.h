// Loads that are made of exchanges: send something, wait for its answer, perhaps again, then close
// or go on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/bench/egress/load_options.h"

namespace cofferdam::bench {

// One thing to send and what must come back.
struct Step {
  enum class Expect : std::uint8_t {
    kHead,      // an HTTP response head without a body
    kResponse,  // an HTTP response with the body that its Content-Length tells
    kBytes,     // `count` bytes of anything
  };
  std::string bytes;
  Expect expect = Expect::kBytes;
  int status = 200;         // of kHead and kResponse
  std::uint64_t count = 0;  // of kBytes
};

struct Script {
  std::string connect_to;  // ADDRESS:PORT
  std::vector<Step> steps;
  bool keep = false;  // the next exchange uses the connection again
};

// tunnels: CONNECT (via=connect) or none (via=plain), then a ClientHello and the server's answer to
// it.
Script tunnel_script(const LoadOptions& options);
// gets: a request for 1 KiB on a kept connection; form=absolute for a proxy, form=origin otherwise.
Script get_script(const LoadOptions& options);
// denials: CONNECT to a host that is refused with 403.
Script denial_script(const LoadOptions& options);

// `connections` at once for `ms`; as fast as it goes, or `rate` a second whatever comes back: then
// times count from when an exchange was due. Prints count, per_second, errors, reconnects, p50_us,
// p99_us.
void run_exchanges(const Script& script, const LoadOptions& options);

// Opens `connections` and runs the script once on each; prints {"open": N, "errors": N}, holds them
// until standard input ends.
void hold_open(const Script& script, const LoadOptions& options);

}  // namespace cofferdam::bench
