// Journal: what makes a merge all or nothing over a kill or a power cut, and what undo needs.
//
// `<sandbox>/merges/active/` is the transaction under way, `<sandbox>/merges/<n>/` one that is at
// rest and can be undone. Each holds:
//   phase      what to do after a kill; replaced as a whole and synced: the commit record
//   plan.json  the steps, written and synced before the phase that needs them
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
};

class Journal final {
 public:
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
  // Makes the newest transaction at rest the one under way, still in phase kDone; nothing when
  // there is none. open_active() then opens it.
  static Result<bool> reopen_last(const SandboxRecord& sandbox);

  Phase phase() const { return phase_; }
  int objects() const { return objects_.get(); }
  const std::filesystem::path& directory() const { return directory_; }

  Status set_phase(Phase phase);
  Status write_plan(const TransactionPlan& plan);
  Result<TransactionPlan> read_plan() const;

  // Copies objects from the state directory to where they can be moved into the workspace, if they
  // do not lie there, and records in `plan` which ones they are. Before a transaction is taken
  // back.
  Status lend_objects(TransactionPlan& plan, bool outside);
  // Puts the transaction at rest: objects in the state directory, nothing in the workspace.
  Status rest(const TransactionPlan& plan);
  // Removes it with everything in it.
  Status discard();
  // As rest(), under a name that no undo takes, with only the objects of these steps: for what
  // could not be put back. Returns where the objects lie.
  Result<std::filesystem::path> keep(const TransactionPlan& plan,
                                     const std::vector<StuckStep>& stuck);

 private:
  Journal(std::filesystem::path directory, int workspace, BeforeAct before_act)
      : directory_(std::move(directory)),
        workspace_(workspace),
        before_act_(std::move(before_act)) {}
  Status before(std::string_view act) const;
  Status write_phase(Phase phase);
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
  os::UniqueFd objects_;
};

// Whether objects of `from` can be renamed into `to`.
bool can_rename_between(int from, int to);

}  // namespace cofferdam::orchestrator::changes
