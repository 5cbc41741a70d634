// The secrets whose values are known at a review: what the sandbox's manifest names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/sandbox_store.h"
#include "orchestrator/secrets/known_secret.h"

namespace cofferdam::orchestrator::changes {

// Variables that the manifest gives to the sandbox and whose names say that they hold a secret:
// with the manifest's value, else with that of this process's environment. A sandbox without a
// readable manifest has none.
std::vector<secrets::KnownSecret> known_secrets_of(const SandboxRecord& sandbox);

// Names of the secrets that the manifest gave, and that are not looked for: what a command printed
// is not kept, and a file or variable that held one is gone. An error where there is a manifest
// that cannot be read.
Result<std::vector<std::string>> secrets_not_looked_for(const SandboxRecord& sandbox);

// `text`, which is to be shown, with every secret replaced that a review of this sandbox would find
// (also in names of files).
Result<std::string> redacted(const SandboxRecord& sandbox, std::string_view text);

}  // namespace cofferdam::orchestrator::changes
