// When the rights of a sandbox end.
#pragma once

#include <chrono>
#include <optional>

#include "orchestrator/sandbox_store.h"

namespace cofferdam::orchestrator {

// Until its manifest expires, or its lifetime ends, whichever comes first; nothing where neither
// does, an error where one has.
Result<std::optional<std::chrono::milliseconds>> left_of_manifest(const SandboxRecord& record);

}  // namespace cofferdam::orchestrator
