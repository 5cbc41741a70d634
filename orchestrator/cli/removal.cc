#include "orchestrator/cli/removal.h"

#include <filesystem>

#include "orchestrator/changes/journal.h"
#include "orchestrator/cli/commands.h"
#include "orchestrator/reap.h"

namespace cofferdam::orchestrator::cli {
namespace {

// What a merge took out of the workspace and could not put back lies in the sandbox's directory.
Status lose_nothing(const SandboxRecord& sandbox, bool force) {
  if (changes::Journal::has_active(sandbox)) {
    return Error(sandbox.name + ": a merge into " + sandbox.workspace +
                 " was cut short and is not brought to an end yet; " +
                 (sandbox.directory / "merges/active").string() +
                 " holds files of that workspace. When they are not needed any more, remove that "
                 "directory first");
  }
  TRY_ASSIGN(const auto kept, changes::Journal::kept(sandbox));
  if (kept.empty() || force) return {};
  return Error(sandbox.name + ": " + kept.front().string() +
               " holds files of the workspace that a merge could not put back; take what you need "
               "from there, then --force");
}

}  // namespace

Status remove_ended(const SandboxStore& store, OwnedSandbox sandbox, bool force) {
  const SandboxRecord& record = sandbox.record;
  if (!record.ended_for_good() || !record.resources.empty()) {
    const Reaped reaped = undo_resources(record);
    if (!reaped.failed.empty()) return Error(record.name + ": " + reaped.failed.front());
  }
  TRY(lose_nothing(record, force));
  if (!force) {
    const auto changes = count_changes(record);
    if (!changes.ok()) {
      return Error(record.name + ": whether it has unmerged changes cannot be told (" +
                   changes.error().message() + "); --force removes it anyway");
    }
    if (*changes > 0) {
      return Error(record.name + " has " + std::to_string(*changes) +
                   " unmerged changes: cofferdam merge " + record.id + ", cofferdam export " +
                   record.id + ", or --force");
    }
  }
  return store.remove(std::move(sandbox));
}

}  // namespace cofferdam::orchestrator::cli
