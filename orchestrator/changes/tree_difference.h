// What differs between two trees of git objects, path by path. Trees that are equal are never
// opened.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/reader/object_check.h"
#include "orchestrator/reader/object_id.h"

namespace cofferdam::orchestrator::changes {

// A file, link or submodule in a tree.
struct TreeFile {
  reader::EntryKind kind = reader::EntryKind::kFile;
  reader::ObjectId id;
  bool operator==(const TreeFile&) const = default;
};

struct TreeDifference {
  std::string path;
  std::optional<TreeFile> before;
  std::optional<TreeFile> after;
};

// The content of a tree.
using ReadTree = std::function<Result<std::string>(const reader::ObjectId& id)>;

// In path order within each directory. A tree that cannot be read is an error, and so are more than
// a million differences.
Result<std::vector<TreeDifference>> compare_trees(const std::optional<reader::ObjectId>& before,
                                                  const reader::ObjectId& after,
                                                  const ReadTree& read);

}  // namespace cofferdam::orchestrator::changes
