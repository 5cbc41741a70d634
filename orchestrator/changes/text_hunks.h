// Hunks of a unified diff between two buffers, by libgit2's xdiff.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "orchestrator/changes/binary_hunk.h"

namespace cofferdam::orchestrator::changes {

struct HunkCount {
  std::uint64_t added = 0;
  std::uint64_t removed = 0;
};

// Three lines of context. `escaped`: every line is made safe for a terminal; `colour`: and
// coloured.
struct HunkStyle {
  bool escaped = false;
  bool colour = false;
};
Result<HunkCount> write_text_hunks(std::string_view before, std::string_view after, HunkStyle style,
                                   const Sink& out);

// A line of text (with or without its newline) in an ANSI colour (SGR), else as it is.
std::string coloured(bool colour, std::string_view code, std::string line);

// Whether git would take the bytes for binary: a NUL within the first 8000.
bool looks_binary(std::string_view bytes);

}  // namespace cofferdam::orchestrator::changes
