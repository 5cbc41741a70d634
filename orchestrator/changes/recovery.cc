#include "orchestrator/changes/recovery.h"

#include <fcntl.h>

#include <csignal>

#include "common/os/file_lock.h"
#include "common/os/files.h"
#include "orchestrator/changes/branch_move.h"
#include "orchestrator/changes/settled.h"

namespace cofferdam::orchestrator::changes {
namespace {

// Signals that would end the process between two acts wait until the workspace is whole.
class SignalsHeld final {
 public:
  SignalsHeld() {
    sigset_t held;
    sigemptyset(&held);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP}) sigaddset(&held, number);
    ::pthread_sigmask(SIG_BLOCK, &held, &before_);
  }
  ~SignalsHeld() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t before_{};
};

// The records that follow from where the workspace is now. Repeatable.
Status close(const SandboxRecord& sandbox, Journal& journal, const TransactionPlan& plan,
             Ending& ending, const BeforeAct& before_act) {
  const bool after = ending.position == Position::kAfter;
  const bool whole = ending.stuck.empty();
  ending.kept = whole ? std::filesystem::path() : journal.directory();
  const Status known = journal.set_phase(after   ? Phase::kDone
                                         : whole ? Phase::kUndone
                                                 : Phase::kKept);
  if (!known.ok()) {
    // A merge that failed must not be carried out by the next command: nothing was settled yet, so
    // that it can go without a record of that.
    const bool may_go = !after && whole && plan.origin == Position::kBefore;
    return may_go && journal.abandon().ok() ? Status() : known;
  }
  if (before_act) TRY(before_act("settle", ""));
  TRY(settle(sandbox, plan.settled, ending.position));
  if (!whole) {
    TRY(journal.drop_all_but(plan, ending.stuck));
    TRY_ASSIGN(ending.kept, journal.keep(plan));
    return {};
  }
  return after ? journal.rest(plan) : journal.discard();
}

}  // namespace

Ending bring_to_end(const SandboxRecord& sandbox, Journal& journal, const TransactionPlan& plan,
                    int workspace, Position to, const BeforeAct& before_act) {
  const SignalsHeld held;
  Ending ending;
  ending.position = to;
  Transaction transaction(workspace, journal.objects(), plan, before_act);
  const auto run = [&](Position where) -> Status {
    TRY(transaction.run(where));
    if (plan.branch == nullptr) return {};
    if (before_act) TRY(before_act("branch", plan.branch->branch));
    return move_branch(sandbox.workspace, *plan.branch, where);
  };
  if (const Status done = run(to); !done.ok()) {
    ending.failure = done.error().message();
    ending.position = other(to);
    // Without this record a kill from here on means that it is tried once more: whole as well.
    (void)journal.set_phase(to == Position::kAfter ? Phase::kBack : Phase::kForward).ok();
    ending.stuck = transaction.run_what_can_be(other(to));
    if (plan.branch != nullptr) {
      const Status back = move_branch(sandbox.workspace, *plan.branch, other(to));
      if (!back.ok()) ending.failure += "; " + back.error().message();
    }
  }
  if (const Status closed = close(sandbox, journal, plan, ending, before_act); !closed.ok()) {
    ending.unfinished = closed.error().message();
  }
  return ending;
}

Result<Recovery> recover_merge(const SandboxRecord& sandbox, const BeforeAct& before_act) {
  Recovery recovery;
  if (!Journal::has_active(sandbox)) return recovery;
  const auto workspace = os::open_file(sandbox.workspace, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!workspace.ok()) return workspace.error().context("the workspace");
  TRY_ASSIGN(const auto lock, os::FileLock::try_acquire_directory(workspace->get()));
  if (!lock.has_value()) {
    recovery.what = Recovery::What::kBusy;
    return recovery;
  }
  TRY_ASSIGN(auto journal, Journal::open_active(sandbox, workspace->get(), before_act));
  if (!journal.has_value()) return recovery;
  if (journal->phase() == Phase::kStaging) {
    TRY(journal->discard());
    recovery.what = Recovery::What::kForgotten;
    return recovery;
  }
  const bool moves = journal->phase() == Phase::kForward || journal->phase() == Phase::kBack;
  if (!journal->is_of_this_workspace() && (moves || journal->lies_in_workspace())) {
    return Error(
        sandbox.workspace +
        " is another directory than the one that was being written into: move that one back "
        "to its place");
  }
  TRY_ASSIGN(const TransactionPlan plan, journal->read_plan());
  const auto conclude = [&](Position position) -> Status {
    recovery.ending.position = position;
    TRY(settle(sandbox, plan.settled, position));
    return position == Position::kAfter ? journal->rest(plan) : journal->discard();
  };
  switch (journal->phase()) {
    case Phase::kStaging:
      break;
    case Phase::kDone:
    case Phase::kLent:
      TRY(conclude(Position::kAfter));
      break;
    case Phase::kUndone:
      TRY(conclude(Position::kBefore));
      break;
    case Phase::kKept: {
      recovery.ending.position = Position::kBefore;
      TRY(settle(sandbox, plan.settled, Position::kBefore));
      TRY_ASSIGN(recovery.ending.kept, journal->keep(plan));
      break;
    }
    case Phase::kForward:
    case Phase::kBack: {
      const Position to =
          journal->phase() == Phase::kForward ? Position::kAfter : Position::kBefore;
      recovery.ending = bring_to_end(sandbox, *journal, plan, workspace->get(), to, before_act);
      if (!recovery.ending.unfinished.empty()) return Error(recovery.ending.unfinished);
      break;
    }
  }
  recovery.what = recovery.ending.position == Position::kAfter ? Recovery::What::kFinished
                                                               : Recovery::What::kTakenBack;
  return recovery;
}

}  // namespace cofferdam::orchestrator::changes
