#include "orchestrator/changes/merge_plan.h"

#include <fcntl.h>

#include <unordered_map>
#include <unordered_set>

#include "common/os/tree_paths.h"
#include "orchestrator/changes/bare_repository.h"
#include "orchestrator/changes/change_json.h"
#include "orchestrator/changes/forbidden_names.h"
#include "orchestrator/changes/three_way.h"

namespace cofferdam::orchestrator::changes {
namespace {

std::string side(const ObjectState& before, const ObjectState& after) {
  if (before.absent() && !after.absent()) return "made a " + std::string(to_text(after.kind));
  if (after.absent()) return before.absent() ? "has nothing there" : "deleted it";
  if (before.kind != after.kind) return "made it a " + std::string(to_text(after.kind));
  if (before.sha256 != after.sha256) {
    return "changed it (now " + std::to_string(after.size) + " bytes)";
  }
  return "changed its mode to " + octal(after.mode);
}

class Decider final {
 public:
  Decider(const LayerView& view, const ChangeSet& set, const MergeOptions& options)
      : view_(view), options_(options) {
    items_.reserve(set.changes.size());
    for (const Change& change : set.changes) {
      by_path_.emplace(change.path, items_.size());
      items_.push_back({change, {}, Outcome::kNotSelected, {}, change.theirs, false, false});
    }
  }

  Result<std::vector<MergeItem>> decide() {
    select();
    for (MergeItem& item : items_) {
      if (selected_.contains(item.change.path)) TRY(decide_one(item));
    }
    for (MergeItem& item : items_) {
      if (item.outcome == Outcome::kTaken) check_parent(item);
    }
    for (MergeItem& item : items_) {
      if (item.outcome == Outcome::kTaken) TRY(check_removal(item));
    }
    TRY(refuse_bare_repositories(view_.workspace(), items_));
    return std::move(items_);
  }

 private:
  void select() {
    for (const MergeItem& item : items_) {
      if (!is_selected(item.change.path, options_.paths)) continue;
      selected_.insert(item.change.path);
      if (item.change.theirs.absent()) continue;
      // What it lies in must be there first.
      for (auto parent = os::parent_of(item.change.path); !parent.empty();
           parent = os::parent_of(parent)) {
        const auto found = by_path_.find(std::string(parent));
        if (found == by_path_.end()) continue;
        const Change& above = items_[found->second].change;
        if (above.theirs.kind == layer::Kind::kDirectory &&
            above.base.kind != layer::Kind::kDirectory) {
          selected_.insert(above.path);
        }
      }
    }
  }

  // The nearest word of the user about this path.
  std::optional<Side> taken_side(std::string_view path) const {
    while (true) {
      const auto found = options_.take.find(std::string(path));
      if (found != options_.take.end()) return found->second;
      if (path.empty()) return std::nullopt;
      path = os::parent_of(path);
    }
  }

  Status decide_one(MergeItem& item) {
    const Change& change = item.change;
    auto ours = view_.ours(change.path);
    if (!ours.ok()) return ours.error().context(change.path);
    item.ours = std::move(ours).value();
    if (item.ours.same_as(change.theirs)) {
      item.outcome = Outcome::kSame;
      return {};
    }
    const std::optional<Side> wanted = taken_side(change.path);
    if (wanted == Side::kOurs) {
      item.outcome = Outcome::kKeptOurs;
      return {};
    }
    // The collector leaves these out; nothing may depend on that alone.
    if (dot_git_prefix(change.path).has_value()) {
      item.outcome = Outcome::kRefused;
      item.why = "nothing of a git directory is taken home";
      return {};
    }
    const bool allowed =
        !options_.allow_risky.empty() && is_selected(change.path, options_.allow_risky);
    if (change.risk.level == RiskLevel::kNeedsAllowance && !allowed) {
      item.outcome = Outcome::kRefused;
      item.why = change.risk.reason + "; --allow-risky takes it home, --take ours leaves it out";
      return {};
    }
    if (wanted == Side::kTheirs || (change.base_known && item.ours.same_as(change.base))) {
      if (item.ours.kind == layer::Kind::kOther) {
        conflict(item, "there is a FIFO, socket or device now");
      } else {
        item.outcome = Outcome::kTaken;
      }
      return {};
    }
    if (!change.base_known && wanted != Side::kMarkers) {
      conflict(item,
               "it changed while the sandbox ran, and what the sandbox started from is not "
               "known");
      return {};
    }
    item.why = "the sandbox " + side(change.base, change.theirs) + "; the workspace since " +
               side(change.base, item.ours);
    merge_both(item, wanted == Side::kMarkers);
    return {};
  }

  // Both sides changed it: by lines where all is text, else it is for the user to say.
  static bool may_merge_lines(const MergeItem& item) {
    return item.change.theirs.kind == layer::Kind::kFile && item.ours.kind == layer::Kind::kFile &&
           item.ours.mode == item.change.theirs.mode;
  }

  void merge_both(MergeItem& item, bool markers) {
    if (!may_merge_lines(item) || (!has_text_base(item.change) && !markers)) {
      return conflict(item, item.why + (markers ? "; only text can carry markers" : ""));
    }
    auto merged = merge_text(view_, item.change, item.ours);
    if (!merged.ok()) {
      const bool told = markers || !item.change.base.sha256.has_value();
      return conflict(item, item.why + (told ? "; " + merged.error().message() : ""));
    }
    if (!merged->clean && !markers) {
      return conflict(item, item.why + ", in the same lines; --take markers writes both");
    }
    item.outcome = Outcome::kTaken;
    item.merged = true;
    item.markers = !merged->clean;
    item.result = item.ours;
    item.result.size = merged->bytes.size();
    item.result.sha256 = sha256(merged->bytes);
    if (item.result.same_as(item.ours)) item.outcome = Outcome::kSame;
  }

  static void conflict(MergeItem& item, std::string why) {
    item.outcome = Outcome::kConflict;
    item.why = std::move(why);
  }

  void check_parent(MergeItem& item) {
    // Where the workspace holds something, it leads there.
    if (item.change.theirs.absent() || !item.ours.absent()) return;
    const std::string parent(os::parent_of(item.change.path));
    const auto found = by_path_.find(parent);
    if (found != by_path_.end()) {
      const MergeItem& above = items_[found->second];
      if (above.outcome == Outcome::kTaken && above.change.theirs.kind == layer::Kind::kDirectory) {
        return;
      }
    }
    if (!view_.workspace_parent(item.change.path).ok()) {
      conflict(item,
               "the directory that it lies in is gone from the workspace, or is none any more");
    }
  }

  // A directory that goes away must hold nothing but what goes away too.
  Status check_removal(MergeItem& item) {
    if (item.ours.kind != layer::Kind::kDirectory ||
        item.change.theirs.kind == layer::Kind::kDirectory) {
      return {};
    }
    const auto directory =
        os::open_in_tree(view_.workspace(), item.change.path, O_RDONLY | O_DIRECTORY);
    if (!directory.ok()) {
      conflict(item, "its directory cannot be read: " + directory.error().message());
      return {};
    }
    std::string unknown;
    TRY(os::for_each_name(directory->get(), [&](std::string_view name) -> Status {
      if (!unknown.empty()) return {};
      const std::string path = item.change.path + "/" + std::string(name);
      const auto found = by_path_.find(path);
      const bool goes = found != by_path_.end() &&
                        items_[found->second].outcome == Outcome::kTaken &&
                        items_[found->second].change.theirs.absent();
      if (!goes) unknown = name;
      return {};
    }));
    if (!unknown.empty()) {
      conflict(item, "the sandbox removed this directory; in the workspace it holds \"" + unknown +
                         "\", which does not go with it");
    }
    return {};
  }

  const LayerView& view_;
  const MergeOptions& options_;
  std::vector<MergeItem> items_;
  std::unordered_map<std::string, std::size_t> by_path_;
  std::unordered_set<std::string> selected_;
};

}  // namespace

Result<std::vector<MergeItem>> decide_merge(const LayerView& view, const ChangeSet& set,
                                            const MergeOptions& options) {
  return Decider(view, set, options).decide();
}

}  // namespace cofferdam::orchestrator::changes
