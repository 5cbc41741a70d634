// The gate's name server: real, already checked addresses for allowed names, nothing for others,
// and no question of any other kind ever leaves.
#pragma once

#include "egressproxy/dns_message.h"
#include "egressproxy/pipeline.h"

namespace cofferdam::egressproxy {

// The answer to one packet; empty: none is sent. `udp` limits its size to what the client takes.
Async<std::string> answer_dns(Pipeline& pipeline, std::string packet, bool udp);

// Until the socket is closed.
Async<void> serve_dns_udp(Pipeline& pipeline, udp::socket& socket);
// One connection (RFC 7766): questions in order, until it ends or is silent.
Async<void> serve_dns_tcp(Pipeline& pipeline, Stream& downstream);

}  // namespace cofferdam::egressproxy
