#include "orchestrator/changes/undo.h"

#include <fcntl.h>

#include "common/base/escape.h"
#include "common/os/file_lock.h"
#include "common/os/files.h"
#include "orchestrator/changes/branch_move.h"
#include "orchestrator/changes/journal.h"
#include "orchestrator/changes/recovery.h"

namespace cofferdam::orchestrator::changes {
namespace {

Status take_back(const SandboxRecord& sandbox, Journal& journal, TransactionPlan& plan,
                 int workspace, const UndoOptions& options, UndoReport& report) {
  TRY(journal.lend_objects(plan, options.objects_in_workspace));
  TRY(journal.write_plan(plan));
  TRY(journal.set_phase(Phase::kBack));
  Ending ending =
      bring_to_end(sandbox, journal, plan, workspace, Position::kBefore, options.before_act);
  report.failure = std::move(ending.failure);
  report.stuck = std::move(ending.stuck);
  report.kept = std::move(ending.kept);
  report.warning = std::move(ending.unfinished);
  return {};
}

}  // namespace

int UndoReport::exit_status() const {
  if (!failure.empty()) return 125;
  return nothing || !changed.empty() ? 1 : 0;
}

Result<UndoReport> undo_merge(const SandboxRecord& sandbox, const UndoOptions& options) {
  TRY_ASSIGN(const Recovery recovered, recover_merge(sandbox, options.before_act));
  if (recovered.what == Recovery::What::kBusy) {
    return Error("another merge into this workspace runs");
  }
  const auto workspace = os::open_file(sandbox.workspace, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!workspace.ok()) return workspace.error().context("the workspace");
  TRY_ASSIGN(const auto lock, os::FileLock::try_acquire_directory(workspace->get()));
  if (!lock.has_value()) return Error("another merge into this workspace runs");

  UndoReport report;
  TRY_ASSIGN(const bool any, Journal::reopen_last(sandbox));
  if (!any) {
    report.nothing = true;
    return report;
  }
  TRY_ASSIGN(auto journal, Journal::open_active(sandbox, workspace->get(), options.before_act));
  if (!journal.has_value()) return Error("the merge's journal is gone");
  TRY_ASSIGN(TransactionPlan plan, journal->read_plan());
  report.paths = plan.states(Position::kBefore).size();
  const Transaction transaction(workspace->get(), journal->objects(), plan, {});
  auto changed = transaction.changed_since(Position::kAfter);
  if (changed.ok() && plan.branch != nullptr) {
    auto moved = branch_changed_since(sandbox.workspace, *plan.branch, Position::kAfter);
    if (!moved.ok()) return moved.error();
    changed->insert(changed->end(), moved->begin(), moved->end());
    report.branch = plan.branch->branch;
  }
  Status done;
  if (!changed.ok()) {
    done = changed.error();
  } else if (report.changed = std::move(changed).value(); report.changed.empty()) {
    done = take_back(sandbox, *journal, plan, workspace->get(), options, report);
    if (done.ok()) return report;
  }
  // It stays as it was, for another time.
  TRY(journal->rest(plan));
  if (!done.ok()) return done.error();
  return report;
}

std::string describe(const UndoReport& report) {
  const auto shown = [](const std::string& text) { return escape_for_terminal(text); };
  if (report.nothing) return "nothing to undo: no merge of this sandbox is at rest here\n";
  std::string text;
  if (!report.changed.empty()) {
    text = "changed since the merge:\n";
    for (const StuckStep& step : report.changed) {
      text += "  " + shown(step.path) + ": " + shown(step.why) + "\n";
    }
    return text + "nothing was written\n";
  }
  for (const StuckStep& step : report.stuck) {
    text += "  left as it is: " + shown(step.path) + ": " + shown(step.why) + "\n";
  }
  if (!report.kept.empty()) {
    text += "what belongs there lies in " + shown(report.kept.string()) + "\n";
  }
  if (!report.warning.empty()) text += "warning: " + shown(report.warning) + "\n";
  if (!report.failure.empty()) {
    return text + "undo failed: " + shown(report.failure) +
           "\neverything was put back; the merge stays\n";
  }
  return text + "undone: " + std::to_string(report.paths) +
         (report.paths == 1 ? " path is" : " paths are") +
         (report.branch.empty() ? "" : ", and branch " + shown(report.branch) + ",") +
         " as before the merge\n";
}

}  // namespace cofferdam::orchestrator::changes
