#include "orchestrator/changes/fast_forward.h"

#include <algorithm>
#include <unordered_set>

#include "orchestrator/changes/blob_id.h"
#include "orchestrator/changes/forbidden_names.h"
#include "orchestrator/changes/history_secrets.h"

namespace cofferdam::orchestrator::changes {
namespace {

using reader::EntryKind;
using reader::ObjectId;
using reader::ObjectType;

constexpr std::size_t kMaxSearched = 100'000;

// The first line of any commit, however old.
Result<ObjectId> tree_of(std::string_view commit) {
  constexpr std::string_view kTree = "tree ";
  const auto id = commit.starts_with(kTree)
                      ? reader::id_from_hex(commit.substr(kTree.size(), 2 * ObjectId::kSize))
                      : std::nullopt;
  if (!id) return Error("a commit without a tree");
  return *id;
}

layer::Kind kind_of(const std::optional<TreeFile>& file) {
  if (!file) return layer::Kind::kAbsent;
  return file->kind == EntryKind::kSymlink ? layer::Kind::kSymlink : layer::Kind::kFile;
}

ObjectState state_of(const std::optional<TreeFile>& file) {
  ObjectState state;
  state.kind = kind_of(file);
  if (state.kind == layer::Kind::kFile) {
    state.mode = file->kind == EntryKind::kExecutable ? 0755U : 0644U;
  }
  return state;
}

ChangeKind kind_of_change(const TreeDifference& difference) {
  if (!difference.before) return ChangeKind::kAdded;
  if (!difference.after) return ChangeKind::kDeleted;
  if (kind_of(difference.before) != kind_of(difference.after)) return ChangeKind::kType;
  return difference.before->id == difference.after->id ? ChangeKind::kMode : ChangeKind::kModified;
}

class Decider final {
 public:
  Decider(const FastForwardContext& context, CommitReport& report)
      : context_(context), home_(context.home), report_(report) {}

  Status decide() {
    TRY_ASSIGN(const HomeHead here, home_.head());
    if (!pick_branch(here)) return {};
    if (!here.tip) {
      refuse("there is no commit here yet");
      return {};
    }
    if (tip_ == *here.tip) return {};
    TRY_ASSIGN(const bool known, is_behind(*here.tip));
    if (known) return {};
    TRY_ASSIGN(const bool forward, leads_to(*here.tip));
    if (!forward) {
      refuse("your " + here.branch + " has commits that the sandbox's has not");
      return {};
    }
    if (const std::string busy = home_.operation_under_way(); !busy.empty()) {
      refuse(busy + " is under way here");
      return {};
    }
    BranchMove move{here.branch, *here.tip, tip_, {}};
    TRY_ASSIGN(move.paths, difference(*here.tip));
    TRY_ASSIGN(const auto staged, staged_otherwise(home_, move, Position::kBefore));
    if (!staged.empty()) {
      refuse(staged.front().path + ": " + staged.front().why);
      return {};
    }
    TRY_ASSIGN(const bool safe, check_paths(move.paths));
    if (!safe || !check_history() || !allowed()) return {};
    report_.move = std::move(move);
    return {};
  }

 private:
  void refuse(const std::string& why) {
    if (!report_.refused.empty()) return;
    report_.refused = why;
  }

  // The branch inside that HEAD inside stands for, where it is the one that is checked out here.
  bool pick_branch(const HomeHead& here) {
    const SandboxCommits& commits = context_.commits;
    const std::string inside = commits.head_tip              ? std::string("HEAD")
                               : commits.head_branch.empty() ? here.branch
                                                             : commits.head_branch;
    if (inside != here.branch || here.branch.empty()) {
      if (report_.has_new()) {
        const auto shown = [](const std::string& branch) {
          return branch.empty() || branch == "HEAD" ? std::string("detached") : branch;
        };
        refuse("inside, HEAD is " + shown(inside) + "; here it is " + shown(here.branch));
      }
      return false;
    }
    const auto found = commits.branches.find(inside);
    if (found == commits.branches.end()) return false;
    if (!found->second.refused.empty()) {
      refuse(found->second.refused);
      return false;
    }
    tip_ = found->second.tip;
    return true;
  }

  // The sandbox only went back, or stayed where it was.
  Result<bool> is_behind(const ObjectId& here) const {
    if (!home_.has(tip_) || context_.commits.received.holds(tip_)) return false;
    return home_.descends(here, tip_);
  }

  // Whether `here` lies in the history of the sandbox's tip; counts the commits between.
  Result<bool> leads_to(const ObjectId& here) {
    std::unordered_set<ObjectId, reader::ObjectIdHash> seen;
    std::vector<ObjectId> pending{tip_};
    bool found = false;
    while (!pending.empty()) {
      const ObjectId id = pending.back();
      pending.pop_back();
      if (!seen.insert(id).second) continue;
      const std::string* content = context_.commits.received.content(id);
      if (content != nullptr) {
        ++report_.ahead;
        TRY_ASSIGN(const auto links, reader::check_commit(*content));
        pending.insert(pending.end(), links.parents.begin(), links.parents.end());
        continue;
      }
      TRY_ASSIGN(const bool descends, home_.descends(id, here));
      found = found || descends;
      if (descends && id != here) {
        TRY_ASSIGN(const std::size_t more, home_.count_between(id, here));
        report_.ahead += more;
      }
    }
    return found;
  }

  Result<std::string> read(ObjectType type, const ObjectId& id) const {
    if (const std::string* content = context_.commits.received.content(id); content != nullptr) {
      return *content;
    }
    return home_.read(type, id);
  }

  Result<std::vector<TreeDifference>> difference(const ObjectId& here) const {
    TRY_ASSIGN(const std::string from, read(ObjectType::kCommit, here));
    TRY_ASSIGN(const std::string to, read(ObjectType::kCommit, tip_));
    TRY_ASSIGN(const ObjectId before, tree_of(from));
    TRY_ASSIGN(const ObjectId after, tree_of(to));
    return compare_trees(before, after,
                         [&](const ObjectId& id) { return read(ObjectType::kTree, id); });
  }

  // What a checkout of the commit would bring to the workspace must be no worse than what a merge
  // may bring.
  Result<bool> check_paths(const std::vector<TreeDifference>& paths) {
    TRY_ASSIGN(const auto tracked, are_tracked(home_, paths));
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const TreeDifference& path = paths[i];
      const auto is_submodule = [](const std::optional<TreeFile>& file) {
        return file && file->kind == EntryKind::kSubmodule;
      };
      if (is_submodule(path.before) || is_submodule(path.after)) {
        refuse(path.path + ": a submodule was changed");
        return false;
      }
      const Top* top = context_.placement.top_of(path.path, false);
      if (top != nullptr && top->place != Place::kIgnored) {
        refuse(path.path + ": the commits hold it, and it is " +
               (top->place == Place::kHidden ? "hidden by rule " + top->detail
                                             : std::string("a name that never comes home")));
        return false;
      }
      if (!tracked[i] && path.after) {
        TRY_ASSIGN(const bool same, is_untracked_otherwise(path));
        if (same) {
          refuse(path.path +
                 ": the commits hold it, and you have another file there that git does "
                 "not track");
          return false;
        }
      }
      assess(path);
    }
    return true;
  }

  // What no longer is in the last commit is in the history all the same.
  bool check_history() {
    const HistorySearch search{
        home_, context_.commits,
        [&](ObjectType type, const ObjectId& id) { return read(type, id); },
        [&](std::string_view text) { return secrets_in(context_.session.secrets, text); },
        [&](ObjectType type, const ObjectId& id) { return secrets_of(type, id); }};
    const auto found = secrets_of_history(search, tip_);
    if (!found.ok()) {
      refuse("the history cannot be searched for secrets: " + found.error().message());
      return false;
    }
    for (const HistorySecret& secret : *found) {
      const bool listed =
          std::any_of(report_.risky.begin(), report_.risky.end(), [&](const Change& c) {
            return c.path == secret.path && c.risk.level == RiskLevel::kNeedsAllowance;
          });
      if (listed) continue;
      Change change;
      change.path = secret.path;
      change.kind = ChangeKind::kAdded;
      change.risk = {
          RiskLevel::kNeedsAllowance, "secret",
          (secret.in_message ? "the message of this commit holds " : "one of the commits holds ") +
              secret.what};
      report_.risky.push_back(std::move(change));
    }
    return true;
  }

  // Whether the user allowed everything that needs it.
  bool allowed() {
    const auto refused =
        std::find_if(report_.risky.begin(), report_.risky.end(), [&](const Change& c) {
          return c.risk.level == RiskLevel::kNeedsAllowance &&
                 (context_.allow_risky.empty() || !is_selected(c.path, context_.allow_risky));
        });
    if (refused == report_.risky.end()) return true;
    refuse(refused->path + ": " + refused->risk.reason + "; --allow-risky takes it home");
    return false;
  }

  Result<bool> is_untracked_otherwise(const TreeDifference& path) const {
    const auto ours = context_.session.view.ours(path.path);
    if (!ours.ok()) return ours.error().context(path.path);
    if (ours->absent()) return false;
    if (ours->kind != layer::Kind::kFile && ours->kind != layer::Kind::kSymlink) return true;
    TRY_ASSIGN(const std::string hex, blob_id(ours->size, [&](const Sink& sink) {
                 return context_.session.view.read_ours(path.path, sink);
               }));
    return hex != reader::to_hex(path.after->id);
  }

  void assess(const TreeDifference& path) {
    Change change;
    change.path = path.path;
    change.kind = kind_of_change(path);
    change.base = state_of(path.before);
    change.theirs = state_of(path.after);
    std::string link;
    if (change.theirs.kind == layer::Kind::kSymlink) {
      auto text = read(ObjectType::kBlob, path.after->id);
      // One that nobody can read leads anywhere.
      link = text.ok() ? std::move(text).value() : "/";
    }
    change.risk = context_.session.risks.assess(change, link);
    if (path.after) assess_secrets(path, change);
    if (change.risk.level != RiskLevel::kNone) report_.risky.push_back(std::move(change));
  }

  // What is here already may have come home before, and the branch not with it.
  secrets::FoundSecrets secrets_of(ObjectType type, const ObjectId& id) const {
    if (context_.commits.received.holds(id)) {
      const auto known = context_.commits.secrets.find(id);
      return known == context_.commits.secrets.end() ? secrets::FoundSecrets() : known->second;
    }
    const auto known = searched_.find(id);
    if (known != searched_.end()) return known->second;
    // One that nobody can read is not known to hold none.
    const auto content = home_.read(type, id);
    auto found = content.ok() ? secrets_in(context_.session.secrets, *content)
                              : secrets::FoundSecrets{{"", "what cannot be read"}};
    if (searched_.size() < kMaxSearched) searched_.emplace(id, found);
    return found;
  }

  // Those that the user's own version does not hold.
  void assess_secrets(const TreeDifference& path, Change& change) const {
    auto secrets = secrets_of(ObjectType::kBlob, path.after->id);
    if (!secrets.empty() && path.before) {
      const auto before = home_.read(ObjectType::kBlob, path.before->id);
      if (before.ok()) {
        secrets::forget_known(secrets, secrets_in(context_.session.secrets, *before));
      }
    }
    if (secrets.empty() || change.risk.level == RiskLevel::kNeedsAllowance) return;
    change.risk = {RiskLevel::kNeedsAllowance, "secret", "it holds " + secrets.begin()->second};
  }

  const FastForwardContext& context_;
  const HomeRepository& home_;
  CommitReport& report_;
  mutable std::map<ObjectId, secrets::FoundSecrets> searched_;  // objects that were here
  ObjectId tip_;
};

}  // namespace

secrets::FoundSecrets secrets_in(const secrets::SecretScanner& scanner, std::string_view bytes) {
  secrets::FoundSecrets found;
  secrets::SecretSearch search = secrets::search_into(scanner, found);
  search.feed(bytes);
  search.finish();
  return found;
}

Status decide_fast_forward(const FastForwardContext& context, CommitReport& report) {
  TRY(Decider(context, report).decide());
  std::stable_sort(report.risky.begin(), report.risky.end(),
                   [](const Change& a, const Change& b) { return a.risk.level > b.risk.level; });
  return {};
}

}  // namespace cofferdam::orchestrator::changes
