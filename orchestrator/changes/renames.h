// Renames: a deleted and an added file that are the same, or much alike.
//
// For people and for patches only: a merge takes both halves as the changes that they are. Exact
// renames are found by digest whatever their size; alike ones within bounds that keep the work
// small: 300 files a side, 1 MiB a file, 64 MiB together.
#pragma once

#include "common/base/result.h"
#include "orchestrator/changes/changes.h"
#include "orchestrator/changes/layer_view.h"

namespace cofferdam::orchestrator::changes {

inline constexpr unsigned kMinSimilarity = 50;  // percent, git's default

// Fills `set.renames`, by index of the added half.
Status find_renames(const LayerView& view, ChangeSet& set);

// How much of the larger one of two contents is in the other too: 0 to 100; 100 only when equal.
unsigned similarity(std::string_view before, std::string_view after);

}  // namespace cofferdam::orchestrator::changes
