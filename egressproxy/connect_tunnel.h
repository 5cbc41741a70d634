// CONNECT: the authority is decided and dialled, then the first bytes inside are verified.
#pragma once

#include "egressproxy/http_head.h"
#include "egressproxy/pipeline.h"

namespace cofferdam::egressproxy {

// Serves the connection to its end.
Async<void> serve_connect(Pipeline& pipeline, Stream& downstream, http::RequestHead head);

}  // namespace cofferdam::egressproxy
