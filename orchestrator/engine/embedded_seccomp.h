// policies/seccomp/default.json as it was when this was built.
#pragma once

namespace cofferdam::orchestrator {

extern const char kSeccompPolicyJson[];

}  // namespace cofferdam::orchestrator
