// When the rights of a sandbox end.
#pragma once

#include <chrono>
#include <optional>

#include "orchestrator/sandbox_store.h"

namespace cofferdam::orchestrator {

// Until its manifest expires; nothing where it does not, an error where it has.
Result<std::optional<std::chrono::milliseconds>> left_of_manifest(const SandboxRecord& record);

}  // namespace cofferdam::orchestrator
