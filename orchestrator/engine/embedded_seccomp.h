// policies/seccomp/ as it was when this was built.
#pragma once

namespace cofferdam::orchestrator {

extern const char kSeccompPolicyJson[];  // default.json
extern const char kStrictSeccompJson[];  // strict.json: what is refused beyond it

}  // namespace cofferdam::orchestrator
