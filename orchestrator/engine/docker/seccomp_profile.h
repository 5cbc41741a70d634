// Docker's form of policies/seccomp/default.json. Pure.
#pragma once

#include "common/base/json_text.h"
#include "common/base/result.h"

namespace cofferdam::orchestrator::docker {

// The outer one of two filters. Process 1 installs the policy itself before it starts anything, and
// the kernel takes the strictest answer of all filters. Here, calls that the policy answers with an
// event (`refuse`, `allow_when`, and conditions on arguments) are let through to that filter;
// everything that the policy does not name is refused already.
Result<Json> make_seccomp_profile(const Json& policy);

}  // namespace cofferdam::orchestrator::docker
