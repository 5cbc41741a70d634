#include "orchestrator/changes/changes.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>

#include "common/os/files.h"
#include "common/os/tree_paths.h"
#include "orchestrator/changes/collector.h"
#include "orchestrator/changes/known_secrets.h"
#include "orchestrator/changes/session.h"

namespace cofferdam::orchestrator::changes {

bool ObjectState::same_as(const ObjectState& other) const {
  if (kind != other.kind) return false;
  switch (kind) {
    case layer::Kind::kAbsent:
      return true;
    case layer::Kind::kDirectory:
      // A new directory inherits set-group-id where its parent has it.
      return (mode & 01777U) == (other.mode & 01777U);
    case layer::Kind::kFile:
      return mode == other.mode && sha256.has_value() && sha256 == other.sha256;
    case layer::Kind::kSymlink:
      return sha256.has_value() && sha256 == other.sha256;
    case layer::Kind::kOther:
      return false;
  }
  return false;
}

std::string_view to_text(ChangeKind kind) {
  constexpr std::array<std::string_view, 6> kTexts = {"added", "modified", "deleted",
                                                      "mode",  "type",     "symlink"};
  return kTexts[static_cast<std::size_t>(kind)];
}

char status_letter(ChangeKind kind) {
  constexpr std::string_view kLetters = "AMDMTM";
  return kLetters[static_cast<std::size_t>(kind)];
}

std::uint64_t ChangeSet::ignored_entries() const {
  return std::accumulate(ignored.begin(), ignored.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Ignored& i) { return sum + i.entries; });
}

std::map<std::size_t, std::size_t> ChangeSet::renamed_away() const {
  std::map<std::size_t, std::size_t> away;
  for (const auto& [to, rename] : renames) away[rename.from] = to;
  return away;
}

std::vector<std::size_t> ChangeSet::by_risk() const {
  std::vector<std::size_t> order(changes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return changes[a].risk.level > changes[b].risk.level;
  });
  return order;
}

bool is_selected(std::string_view path, const std::vector<std::string>& selectors) {
  if (selectors.empty()) return true;
  return std::any_of(selectors.begin(), selectors.end(), [&](const std::string& selector) {
    return selector.empty() || path == selector ||
           (path.size() > selector.size() && path.starts_with(selector) &&
            path[selector.size()] == '/');
  });
}

Result<std::string> selector_from_argument(std::string_view argument, std::string_view directory,
                                           std::string_view workspace) {
  namespace fs = std::filesystem;
  const fs::path full = (fs::path(directory) / fs::path(argument)).lexically_normal();
  const fs::path relative = full.lexically_relative(fs::path(workspace).lexically_normal());
  std::string text = relative.string();
  while (text.ends_with('/')) text.pop_back();
  if (text == ".") text.clear();
  if (argument.empty() || (text.empty() && relative.empty()) || !os::is_tree_path(text)) {
    return Error("not a path of the workspace: " + std::string(argument));
  }
  return text;
}

namespace {

// The workspace as the workload had it; without its rules nothing is judged.
struct WorkspaceMount {
  policy::FsRules rules;
  bool attributes = false;
};
Result<WorkspaceMount> mount_of(const SandboxRecord& sandbox) {
  TRY_ASSIGN(const std::string text, os::read_file(sandbox.fs_policy()));
  TRY_ASSIGN(const Json policy, parse_json(text).context("fs.json"));
  if (policy.is_object() && policy.contains("mounts") && policy["mounts"].is_array()) {
    for (const Json& mount : policy["mounts"]) {
      if (!mount.is_object() || mount.value("name", "") != "workspace") continue;
      TRY_ASSIGN(auto rules, policy::FsRules::parse(mount.value("rules", Json::array())));
      return WorkspaceMount{std::move(rules), mount.value("xattr", false)};
    }
  }
  return Error("fs.json: no workspace mount");
}

}  // namespace

Result<ReviewSession> ReviewSession::open(const SandboxRecord& sandbox) {
  TRY_ASSIGN(LayerView view, LayerView::open(sandbox));
  TRY_ASSIGN(Settled settled, Settled::load(sandbox));
  TRY_ASSIGN(RiskTable risks, RiskTable::built_in());
  TRY_ASSIGN(auto scanner, secrets::SecretScanner::built_in(known_secrets_of(sandbox)));
  TRY_ASSIGN(WorkspaceMount mount, mount_of(sandbox));
  TRY_ASSIGN(IgnoreRules ignore, IgnoreRules::open(sandbox.workspace));
  return ReviewSession{std::move(view),    std::move(settled),     std::move(risks),
                       std::move(scanner), std::move(mount.rules), mount.attributes,
                       std::move(ignore)};
}

Result<ChangeSet> ReviewSession::collect_in(Placement place) const {
  const mode_t mask = ::umask(022);
  ::umask(mask);
  return Collector(view, std::move(place), {risks, secrets, settled, mask}).collect();
}

Result<ChangeSet> ReviewSession::collect_with_ignored(const std::vector<std::string>& paths) const {
  Placement with_ignored = placement();
  with_ignored.admit_ignored(paths);
  return collect_in(std::move(with_ignored));
}

Result<ChangeSet> compute_changes(const SandboxRecord& sandbox) {
  TRY_ASSIGN(const ReviewSession session, ReviewSession::open(sandbox));
  return session.collect();
}

Result<std::size_t> count_unmerged_changes(const SandboxRecord& sandbox) {
  TRY_ASSIGN(const ReviewSession session, ReviewSession::open(sandbox));
  TRY_ASSIGN(const ChangeSet set, session.collect());
  std::size_t count = 0;
  for (const Change& change : set.changes) {
    TRY_ASSIGN(const ObjectState ours, session.view.ours(change.path));
    if (!ours.same_as(change.theirs)) ++count;
  }
  return count;
}

}  // namespace cofferdam::orchestrator::changes
