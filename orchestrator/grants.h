// Grants: what a person allowed a running sandbox for a time. A grant is a rule of the sandbox's
// policy that ends by itself; the sandbox's directory keeps who gave it, when, why and until when.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "common/base/text_time.h"
#include "common/policy/budget.h"
#include "orchestrator/sandbox_store.h"

namespace cofferdam::orchestrator {

struct Grant {
  std::string id;    // grant:1, the rule's id in events
  std::string rule;  // as it was written
  std::string who;
  std::string why;
  std::string granted;   // RFC 3339
  std::string expires;   // RFC 3339
  std::string manifest;  // the digest of the rights with it
  bool active(WallTime now) const;
};

struct GrantRequest {
  std::string rule;
  std::chrono::milliseconds duration{0};
  std::string who;
  std::string why;
  policy::Budget budget;  // that the organisation's rules leave it
};

// In the order in which they were given; none for a sandbox that has none.
Result<std::vector<Grant>> read_grants(const SandboxRecord& sandbox);
Json grants_json(const std::vector<Grant>& grants, WallTime now);

// Puts the rule first into the sandbox's policy, tells its egressproxy, and records it: an event
// before it holds, the state after. An error leaves the rights as they were.
Result<Grant> give_grant(const SandboxRecord& sandbox, const GrantRequest& request);

}  // namespace cofferdam::orchestrator
