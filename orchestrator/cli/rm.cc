#include <filesystem>
#include <memory>
#include <vector>

#include "orchestrator/changes/journal.h"
#include "orchestrator/cli/commands.h"
#include "orchestrator/cli/surroundings.h"
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

Status remove_one(const Context& context, const SandboxStore& store, const std::string& selector,
                  bool force) {
  TRY_ASSIGN(const SandboxRecord record, find_sandbox(context, selector));
  auto owned = store.try_own(record);
  if (!owned.ok()) return owned.error();
  if (!*owned) {
    return Error(record.name + " is running; end it first (Ctrl-C in its terminal, or SIGTERM to " +
                 std::to_string(record.supervisor_pid) + ")");
  }
  OwnedSandbox sandbox = std::move(**owned);
  if (!sandbox.record.ended_for_good()) {
    const Reaped reaped = undo_resources(sandbox.record);
    if (!reaped.failed.empty()) return Error(record.name + ": " + reaped.failed.front());
  }
  TRY(lose_nothing(sandbox.record, force));
  if (!force) {
    const auto changes = count_changes(sandbox.record);
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
  TRY(store.remove(std::move(sandbox)));
  print_line("removed " + record.name + " (" + record.id + ")");
  return {};
}

int remove(const Context& context, const std::vector<std::string>& selectors, bool force) {
  const auto store = SandboxStore::open();
  if (!store.ok()) return fail(store.error());
  int status = 0;
  for (const std::string& selector : selectors) {
    Status done = remove_one(context, *store, selector, force);
    if (!done.ok()) status = fail(done.error());
  }
  return status;
}

}  // namespace

void add_rm(CLI::App& app, Context& context) {
  struct Options {
    std::vector<std::string> selectors;
    bool force = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("rm", "Remove sandboxes that have ended, with their changes");
  command->add_option("S", options->selectors, "Sandboxes: id, name or last")->required();
  command->add_flag("--force", options->force, "Also with unmerged changes");
  command->callback([&context, options] {
    context.action = [&context, options] {
      return remove(context, options->selectors, options->force);
    };
  });
}

}  // namespace cofferdam::orchestrator::cli
