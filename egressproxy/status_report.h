// What the control socket tells about the running service, as JSON and as Prometheus text.
#pragma once

#include <string>

#include "egressproxy/live_policy.h"
#include "egressproxy/resolver.h"
#include "egressproxy/server.h"

namespace cofferdam::egressproxy {

// Everything that there is to tell of; all outlive the report.
struct StatusSources {
  const Server& server;
  Pipeline& pipeline;
  const Resolver& resolver;
  const LivePolicy& policy;
};

Json stats_report(const StatusSources& sources);
// {"connections": [{id, protocol, host, port, address, rule, bytes_up, bytes_down, since}, …]},
// oldest first.
Json connections_report(const StatusSources& sources);
// Text exposition format 0.0.4 of Prometheus.
std::string metrics_report(const StatusSources& sources);

}  // namespace cofferdam::egressproxy
