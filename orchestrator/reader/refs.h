// Names and files of git references, taken for hostile. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/reader/object_id.h"

namespace cofferdam::orchestrator::reader {

// Whether "refs/heads/" + `name` is a reference that git makes (git-check-ref-format(1)), short
// enough for a file system, and no other name than it seems: HEAD and names with a leading dash are
// none.
bool is_branch_name(std::string_view name);

// A loose reference, or HEAD: an id, or the branch that it stands for.
struct RefValue {
  std::optional<ObjectId> id;
  std::string branch;  // of "ref: refs/heads/<branch>"
};
Result<RefValue> parse_ref_file(std::string_view content);

struct PackedBranch {
  std::string name;  // without refs/heads/
  ObjectId id;
};
struct PackedRefs {
  std::vector<PackedBranch> branches;
  std::vector<std::string> refused;  // names below refs/heads/ that are none
};
// The branches of `packed-refs`; other references are passed over. A broken line is an error.
Result<PackedRefs> parse_packed_refs(std::string_view content);

}  // namespace cofferdam::orchestrator::reader
