#include "orchestrator/changes/tree_difference.h"

#include <map>

#include "common/os/tree_paths.h"

namespace cofferdam::orchestrator::changes {
namespace {

using reader::EntryKind;
using reader::ObjectId;

constexpr std::size_t kMaxDifferences = 1'000'000;
// Looked at, of both sides: one tree may stand in a thousand places, and nothing in it in the end.
constexpr std::size_t kMaxEntries = 4'000'000;

struct Pair {
  std::optional<TreeFile> before;
  std::optional<TreeFile> after;
};

struct Directory {
  std::string path;  // "" or with a slash at its end
  std::optional<ObjectId> before;
  std::optional<ObjectId> after;
};

bool is_tree(const std::optional<TreeFile>& entry) {
  return entry.has_value() && entry->kind == EntryKind::kTree;
}

std::optional<ObjectId> tree_of(const std::optional<TreeFile>& entry) {
  return is_tree(entry) ? std::optional<ObjectId>(entry->id) : std::nullopt;
}

std::optional<TreeFile> file_of(const std::optional<TreeFile>& entry) {
  return is_tree(entry) ? std::nullopt : entry;
}

using Pairs = std::map<std::string, Pair>;

Status take_side(const std::optional<ObjectId>& tree, const ReadTree& read,
                 std::optional<TreeFile> Pair::*side, Pairs& pairs) {
  if (!tree) return {};
  TRY_ASSIGN(const std::string content, read(*tree));
  TRY_ASSIGN(const auto entries, reader::parse_tree(content));
  for (const auto& entry : entries) {
    pairs[std::string(entry.name)].*side = TreeFile{entry.kind, entry.id};
  }
  return {};
}

}  // namespace

Result<std::vector<TreeDifference>> compare_trees(const std::optional<ObjectId>& before,
                                                  const ObjectId& after, const ReadTree& read) {
  std::vector<TreeDifference> differences;
  std::vector<Directory> pending;
  if (before != after) pending.push_back({"", before, after});
  std::size_t entries = 0;
  while (!pending.empty()) {
    const Directory directory = std::move(pending.back());
    pending.pop_back();
    Pairs pairs;
    TRY(take_side(directory.before, read, &Pair::before, pairs));
    TRY(take_side(directory.after, read, &Pair::after, pairs));
    entries += 1 + pairs.size();
    if (entries > kMaxEntries) return Error("more changes than can be reviewed");
    for (const auto& [name, pair] : pairs) {
      if (pair.before == pair.after) continue;
      std::string path = directory.path + name;
      if (path.size() > os::kMaxTreePath) return Error("a path that is longer than a path may be");
      if (is_tree(pair.before) || is_tree(pair.after)) {
        pending.push_back({path + "/", tree_of(pair.before), tree_of(pair.after)});
      }
      const auto old_file = file_of(pair.before);
      const auto new_file = file_of(pair.after);
      if (!old_file && !new_file) continue;
      if (differences.size() == kMaxDifferences) return Error("more changes than can be reviewed");
      differences.push_back({std::move(path), old_file, new_file});
    }
  }
  return differences;
}

}  // namespace cofferdam::orchestrator::changes
