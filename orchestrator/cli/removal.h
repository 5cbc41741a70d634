// Removing an ended sandbox without losing what only it holds; for `rm` and `prune`.
#pragma once

#include "common/base/result.h"
#include "orchestrator/sandbox_store.h"

namespace cofferdam::orchestrator::cli {

// Refuses a sandbox with unmerged changes, or with files of the workspace that a merge could not
// put back, unless `force`; one whose merge is not brought to an end always.
Status remove_ended(const SandboxStore& store, OwnedSandbox sandbox, bool force);

}  // namespace cofferdam::orchestrator::cli
