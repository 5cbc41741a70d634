// The service from its start to its end: set up, enter the cage, say ready, serve, end in order.
#pragma once

#include "egressproxy/options.h"

namespace cofferdam::egressproxy {

// Serves until SIGTERM or the end of the liveness pipe. An error is one of the start, or the loss
// of something that it cannot do without; the supervisor is told of the former by the ready pipe.
Status run_service(const Options& options);

}  // namespace cofferdam::egressproxy
