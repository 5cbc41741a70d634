// Three-way merge of text, by libgit2's xdiff, from buffers: no attributes, no filters, no driver.
#pragma once

#include <string>

#include "common/base/result.h"
#include "orchestrator/changes/changes.h"
#include "orchestrator/changes/layer_view.h"

namespace cofferdam::orchestrator::changes {

struct TextMerge {
  bool clean = false;  // else `bytes` carries conflict markers
  std::string bytes;
};

// Whether there was a file that both sides started from.
bool has_text_base(const Change& change);

// Merges base, ours and theirs of `change`; the content of each is compared with its digest.
// Without a base the two sides are set against each other. An error says why these cannot be merged
// as text.
Result<TextMerge> merge_text(const LayerView& view, const Change& change, const ObjectState& ours);

}  // namespace cofferdam::orchestrator::changes
