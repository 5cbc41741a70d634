#include <memory>
#include <vector>

#include "orchestrator/cli/commands.h"
#include "orchestrator/cli/removal.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/stopping.h"

namespace cofferdam::orchestrator::cli {
namespace {

Status remove_one(const Context& context, const SandboxStore& store, const std::string& selector,
                  bool force) {
  TRY_ASSIGN(const SandboxRecord record, find_sandbox(context, selector));
  TRY_ASSIGN(auto owned, store.try_own(record));
  if (!owned && force) {
    TRY(stop_sandboxes(store, {record}, true).front().done);
    TRY_ASSIGN(owned, store.try_own(record));
  }
  if (!owned) {
    return Error(record.name + " is running; end it first: cofferdam stop " + record.id);
  }
  TRY(remove_ended(store, std::move(*owned), force));
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
  command->add_flag("--force", options->force, "Also with unmerged changes, and one that runs");
  command->callback([&context, options] {
    context.action = [&context, options] {
      return remove(context, options->selectors, options->force);
    };
  });
}

}  // namespace cofferdam::orchestrator::cli
