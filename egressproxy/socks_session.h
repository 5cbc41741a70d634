// SOCKS on the explicit port: the handshake, then a tunnel like CONNECT's.
#pragma once

#include "egressproxy/pipeline.h"

namespace cofferdam::egressproxy {

// Serves a connection whose first byte was 5 to its end.
Async<void> serve_socks5(Pipeline& pipeline, Stream& downstream);
// One whose first byte was 4. SOCKS4 has no names and no answer that fits: it is closed.
Async<void> refuse_socks4(Pipeline& pipeline, Stream& downstream);

}  // namespace cofferdam::egressproxy
