// Hunks of a unified diff between two buffers, by libgit2's xdiff.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/base/result.h"
#include "orchestrator/changes/binary_hunk.h"

namespace cofferdam::orchestrator::changes {

struct HunkCount {
  std::uint64_t added = 0;
  std::uint64_t removed = 0;
};

// Three lines of context. With `escaped`, every line is made safe for a terminal.
Result<HunkCount> write_text_hunks(std::string_view before, std::string_view after, bool escaped,
                                   const Sink& out);

// Whether git would take the bytes for binary: a NUL within the first 8000.
bool looks_binary(std::string_view bytes);

}  // namespace cofferdam::orchestrator::changes
