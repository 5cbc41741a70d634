// Which host and path a request is for, and whether it may be asked here. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/policy/egress_policy.h"
#include "egressproxy/http_head.h"
#include "egressproxy/refusal.h"

namespace cofferdam::egressproxy::http {

// Where requests come from, and what they may be for.
struct Site {
  std::string via;        // for events: http, transparent, connect
  bool is_proxy = false;  // absolute-form only, any host; else `hosts` and `port` are all there is
  std::vector<policy::Host> hosts;
  std::uint16_t port = 80;
  bool any_host = false;  // besides `hosts`, each of which is decided for itself anyhow
};

struct Target {
  policy::Endpoint endpoint;
  std::string path;  // origin-form, as sent
};
struct TargetResult {
  std::optional<Target> target;
  Refusal refusal;
};

// The host is the authority of the target; a Host field must agree with it (RFC 9112 3.2.2), and in
// front of a server it must be one of the site's: Host may narrow what was decided, never widen it.
// Where nothing is enforced, the site may take any.
TargetResult find_target(const RequestHead& head, const Site& site);

// Without the query.
std::string path_of(std::string_view origin_target);

}  // namespace cofferdam::egressproxy::http
