// Journal: what makes a merge all or nothing over a kill or a power cut, and what undo needs.
//
// `<sandbox>/merges/active/` is the transaction under way, `<sandbox>/merges/<n>/` one that is at
// rest and can be undone. Each holds:
//   phase      what to do after a kill; replaced as a whole: the commit record
//   plan.json  the steps, written before the phase that needs them
//   objects/   before: what the merge will put in; after: what it replaced and removed
// Objects must lie in the workspace's file system. Where the state directory lies elsewhere, they
// are in `.cofferdam-merge-<random>` at the top of the workspace while a transaction is under way,
// and are copied home when it has ended. Nothing in a workspace is ever believed: the journal is
// the user's own. Single thread; the caller holds the sandbox's lock and the workspace's.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/os/unique_fd.h"
#include "orchestrator/changes/transaction.h"

namespace cofferdam::orchestrator::changes {

enum class Phase : std::uint8_t {
  kStaging,  // nothing of the workspace was touched: throw away
  kForward,  // to be carried out; taken back where that cannot be
  kDone,     // carried out: record what is settled, bring the old objects home
  kLent,     // carried out and settled; objects are copies: throw those away
  kBack,     // to be taken back; carried out again where that cannot be
  kUndone,   // taken back: record what is not settled any more, throw away
  kKept,     // the same, but for paths that somebody changed: what belongs there is to be kept
};

class Journal final {
 public:
  static constexpr std::string_view kKeptPrefix = "kept-";
  // Names at the top of a workspace that only a merge gives.
  static constexpr std::string_view kPrefix = ".cofferdam-merge-";

  // A new transaction in phase kStaging. `outside`: objects in the workspace although the state
  // directory would do (for tests).
  static Result<Journal> begin(const SandboxRecord& sandbox, int workspace, bool outside,
                               BeforeAct before_act);
  // The transaction under way, or nothing.
  static Result<std::optional<Journal>> open_active(const SandboxRecord& sandbox, int workspace,
                                                    BeforeAct before_act);
  static bool has_active(const SandboxRecord& sandbox);
  // Directories that keep() filled: files of the workspace that are nowhere else.
  static Result<std::vector<std::filesystem::path>> kept(const SandboxRecord& sandbox);
  // Makes the newest transaction at rest the one under way, still in phase kDone; nothing when
  // there is none. open_active() then opens it.
  static Result<bool> reopen_last(const SandboxRecord& sandbox);

  Phase phase() const { return phase_; }
  int objects() const { return objects_.get(); }
  const std::filesystem::path& directory() const { return directory_; }

  // Durable at once, but for kDone and kStaging: after a loss of power what was before them leads
  // to the same end.
  Status set_phase(Phase phase);
  // Durable at once, but in kStaging with sync(), as the objects and the journal itself are.
  Status write_plan(const TransactionPlan& plan);
  Status sync();
  Result<TransactionPlan> read_plan() const;

  // Whether the workspace is the directory that the phase was written for: else the objects of a
  // transaction that moves do not belong to what is there.
  bool is_of_this_workspace() const { return of_this_workspace_; }
  bool lies_in_workspace() const { return !outside_.empty(); }

  // Copies objects from the state directory to where they can be moved into the workspace, if they
  // do not lie there, and records in `plan` which ones they are. Before a transaction is taken
  // back.
  Status lend_objects(TransactionPlan& plan, bool outside);
  // Puts the transaction at rest: objects in the state directory, nothing in the workspace.
  Status rest(const TransactionPlan& plan);
  // Removes it with everything in it.
  Status discard();
  // As discard(), where not even a phase can be written (the disk is full): the next command must
  // find nothing to carry out.
  Status abandon();
  // As rest(), under a name that no undo takes: for what could not be put back. drop_all_but()
  // first removes the objects of other steps. Returns where the objects lie.
  Status drop_all_but(const TransactionPlan& plan, const std::vector<StuckStep>& stuck);
  Result<std::filesystem::path> keep(const TransactionPlan& plan);

 private:
  Journal(std::filesystem::path directory, int workspace, BeforeAct before_act)
      : directory_(std::move(directory)),
        workspace_(workspace),
        before_act_(std::move(before_act)) {}
  Status before(std::string_view act) const;
  Status write_phase(Phase phase, bool durable);
  Status sync_names() const;
  Status open_objects();
  Status make_outside();
  Status bring_home(const TransactionPlan& plan);
  Status remove_outside();
  Status move_to(const std::filesystem::path& name);

  std::filesystem::path directory_;
  int workspace_;
  BeforeAct before_act_;
  Phase phase_ = Phase::kStaging;
  std::string outside_;  // name in the workspace, or empty
  bool of_this_workspace_ = true;
  os::UniqueFd objects_;
};

// Whether objects of `from` can be renamed into `to`.
bool can_rename_between(int from, int to);

}  // namespace cofferdam::orchestrator::changes
