// MergePlan: what would become of each change, decided before anything is written.
#pragma once

#include "common/base/result.h"
#include "orchestrator/changes/merge.h"
#include "orchestrator/changes/session.h"

namespace cofferdam::orchestrator::changes {

// One item per change of `set`, in its order, with what the workspace holds now. Reads the
// workspace, writes nothing.
Result<std::vector<MergeItem>> decide_merge(const LayerView& view, const ChangeSet& set,
                                            const MergeOptions& options);

}  // namespace cofferdam::orchestrator::changes
