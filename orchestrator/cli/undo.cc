#include "orchestrator/changes/undo.h"

#include <cstdio>
#include <memory>

#include "orchestrator/changes/recovery.h"
#include "orchestrator/cli/commands.h"
#include "orchestrator/cli/recorded_operation.h"
#include "orchestrator/cli/review.h"
#include "orchestrator/cli/surroundings.h"

namespace cofferdam::orchestrator::cli {
namespace {

using changes::Recovery;

int undo(const Context& context, const std::string& selector) {
  const auto found = find_sandbox(context, selector);
  if (!found.ok()) return fail(found.error());
  const auto owned = own_ended(*found, "its merges can only be taken back after it has ended");
  if (!owned.ok()) return fail(owned.error());
  auto operation = RecordedOperation::begin(owned->record, "undo", Json::object());
  if (!operation.ok()) return fail(operation.error());
  const auto report = changes::undo_merge(owned->record);
  if (!report.ok()) {
    operation->end(kExitFailed, report.error().message(), Json::object());
    return fail(report.error());
  }
  operation->end(report->exit_status(), report->failure, {{"paths", report->paths}});
  if (const int shown = show(owned->record, changes::describe(*report), stdout); shown != 0) {
    return shown;
  }
  if (report->exit_status() == kExitFailed) {
    note_of(owned->record, "undo failed: " + report->failure);
  }
  return report->exit_status();
}

// One look per sandbox, before each command: nothing is read.
bool any_active(const std::filesystem::path& root) {
  std::error_code code;
  for (std::filesystem::directory_iterator it(root, code), end; !code && it != end;
       it.increment(code)) {
    SandboxRecord record;
    record.directory = it->path();
    if (changes::Journal::has_active(record)) return true;
  }
  return false;
}

void tell(const SandboxRecord& sandbox, const Recovery& recovery) {
  const std::string what = "a merge of " + sandbox.name + " that was cut short ";
  switch (recovery.what) {
    case Recovery::What::kNothing:
    case Recovery::What::kBusy:
      return;
    case Recovery::What::kForgotten:
      return note(what + "had not begun to write: nothing was changed");
    case Recovery::What::kFinished:
      note(what + "is finished now; cofferdam undo " + sandbox.id + " takes it back");
      break;
    case Recovery::What::kTakenBack:
      note(what + "is taken back: the workspace is as it was");
      break;
  }
  if (!recovery.ending.failure.empty()) note("because: " + recovery.ending.failure);
  for (const changes::StuckStep& step : recovery.ending.stuck) {
    note("left as it is: " + step.path + ": " + step.why);
  }
  if (!recovery.ending.kept.empty()) {
    note("what belongs there lies in " + recovery.ending.kept.string());
  }
}

}  // namespace

void recover_merges() {
  const auto store = SandboxStore::open();
  if (!store.ok() || !any_active(store->root())) return;
  const auto sandboxes = store->list();
  if (!sandboxes.ok()) return;
  for (const SandboxRecord& sandbox : *sandboxes) {
    if (!changes::Journal::has_active(sandbox)) continue;
    const auto owned = store->try_own(sandbox);
    if (!owned.ok() || !owned->has_value()) continue;  // it merges just now
    const auto recovery = changes::recover_merge((*owned)->record);
    if (recovery.ok()) {
      tell(sandbox, *recovery);
    } else {
      note("a merge of " + sandbox.name + " into " + sandbox.workspace +
           " was cut short and cannot be brought to an end: " + recovery.error().message());
    }
  }
}

void add_undo(CLI::App& app, Context& context) {
  auto selector = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "undo", "Take a sandbox's newest merge back, unless you changed what it brought");
  command->add_option("S", *selector, "Sandbox: id, name or last")->required();
  command->callback([&context, selector] {
    context.action = [&context, selector] { return undo(context, *selector); };
  });
}

}  // namespace cofferdam::orchestrator::cli
