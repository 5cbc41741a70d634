// Patch: changes in the form that stock `git apply --binary` takes, or as text for a terminal.
//
// Content comes from buffers and streams, never through a repository: no attributes, no filters, no
// text conversion. Byte exact unless for_display.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "orchestrator/changes/binary_hunk.h"
#include "orchestrator/changes/changes.h"
#include "orchestrator/changes/layer_view.h"

namespace cofferdam::orchestrator::changes {

// Files above this are shown and exported as binary.
inline constexpr std::uint64_t kMaxTextBytes = 8U << 20U;

struct PatchStyle {
  bool for_display = false;  // content escaped, binary content only measured
  bool colour = false;       // for_display on a terminal
};

struct PatchResult {
  enum class Written : std::uint8_t {
    kWhole,
    kPartly,   // something of it has no form in a patch: note says what
    kImplied,  // a directory that comes with its files
    kNone,     // note says why
  };
  Written written = Written::kWhole;
  std::string note;
  bool binary = false;
  std::uint64_t lines_added = 0;
  std::uint64_t lines_removed = 0;
};

// Writes what there is to say about one change. Content that is not what the change says any more
// is an error.
Result<PatchResult> write_patch(const LayerView& view, const Change& change, PatchStyle style,
                                const Sink& out);

// The same of a rename: one section that git apply takes. `from` is the deletion, `to` the
// addition.
Result<PatchResult> write_rename(const LayerView& view, const Change& from, const Change& to,
                                 unsigned similarity, PatchStyle style, const Sink& out);

// A name as git writes it: as it is, or in double quotes with C escapes (git-diff-tree(1), "-z").
std::string quote_name(std::string_view name);

}  // namespace cofferdam::orchestrator::changes
