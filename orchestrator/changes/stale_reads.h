// Stale reads: what the sandbox read, did not change, and the user has changed since.
#pragma once

#include <vector>

#include "common/base/result.h"
#include "orchestrator/changes/merge.h"
#include "orchestrator/changes/session.h"

namespace cofferdam::orchestrator::changes {

// Git directories, hidden paths and what the sandbox changed itself are left out. By path.
Result<std::vector<StaleRead>> find_stale_reads(const ReviewSession& session, Placement& placement,
                                                const ChangeSet& set);

}  // namespace cofferdam::orchestrator::changes
