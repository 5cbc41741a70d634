#include "orchestrator/changes/bare_repository.h"

#include <fcntl.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "common/os/tree_paths.h"
#include "orchestrator/changes/forbidden_names.h"

namespace cofferdam::orchestrator::changes {
namespace {

struct Difference {
  std::set<std::string> added;
  std::set<std::string> removed;
};

bool matters(std::string_view name) {
  // Most names are told by their first letter; others than ASCII may vanish when they are folded.
  constexpr std::string_view kFirst = "hHoOrRcC";
  if (name.empty()) return false;
  const bool ascii = static_cast<unsigned char>(name[0]) < 0x80;
  if (ascii && kFirst.find(name[0]) == std::string_view::npos) return false;
  constexpr std::string_view kNames[] = {"head", "objects", "refs", "commondir"};
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&](std::string_view wanted) { return folds_to(name, wanted); });
}

// What the merge adds no name to that matters is a repository only if it is one now: then git finds
// its HEAD by this name, in whatever case the directory has it.
bool has_head(int workspace, const std::string& directory) {
  const auto fd = os::open_in_tree(workspace, directory, O_PATH | O_DIRECTORY);
  return fd.ok() && os::stat_in(fd->get(), "HEAD").ok();
}

Result<std::set<std::string>> names_after(int workspace, const std::string& directory,
                                          const Difference& difference) {
  std::set<std::string> names;
  const auto fd = os::open_in_tree(workspace, directory, O_RDONLY | O_DIRECTORY);
  if (fd.ok()) {
    TRY(os::for_each_name(fd->get(), [&](std::string_view name) -> Status {
      if (matters(name)) names.emplace(name);
      return {};
    }));
  }
  for (const std::string& name : difference.removed) names.erase(name);
  for (const std::string& name : difference.added) names.insert(name);
  return names;
}

}  // namespace

bool is_repository_listing(const std::set<std::string>& names) {
  const auto has = [&](std::string_view wanted) {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return folds_to(name, wanted); });
  };
  return has("head") && ((has("objects") && has("refs")) || has("commondir"));
}

Status refuse_bare_repositories(int workspace, std::vector<MergeItem>& items) {
  std::map<std::string, Difference> directories;
  for (const MergeItem& item : items) {
    if (item.outcome != Outcome::kTaken) continue;
    const std::string_view path = item.change.path;
    const std::string_view name = os::leaf_of(path);
    Difference& difference = directories[std::string(os::parent_of(path))];
    if (matters(name)) {
      (item.change.theirs.absent() ? difference.removed : difference.added).emplace(name);
    }
    for (auto above = os::parent_of(path); !above.empty();) {
      above = os::parent_of(above);
      if (!directories.try_emplace(std::string(above)).second) break;
    }
  }
  std::vector<std::string> repositories;
  for (const auto& [directory, difference] : directories) {
    const bool same_names = difference.added.empty() && difference.removed.empty();
    if (same_names && !has_head(workspace, directory)) continue;
    TRY_ASSIGN(const auto names, names_after(workspace, directory, difference));
    if (is_repository_listing(names)) repositories.push_back(directory);
  }
  if (repositories.empty()) return {};
  for (MergeItem& item : items) {
    if (item.outcome != Outcome::kTaken) continue;
    for (const std::string& directory : repositories) {
      if (!is_selected(item.change.path, {directory})) continue;
      item.outcome = Outcome::kRefused;
      item.why = (directory.empty() ? std::string("the workspace") : "\"" + directory + "\"") +
                 " would be a git repository of its own (HEAD, objects, refs), whose configuration "
                 "git obeys; --take ours leaves it out";
      break;
    }
  }
  return {};
}

}  // namespace cofferdam::orchestrator::changes
