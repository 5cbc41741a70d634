#include <memory>

#include "orchestrator/cli/commands.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/stopping.h"

namespace cofferdam::orchestrator::cli {
namespace {

int stop(const Context& context, const std::vector<std::string>& selectors, bool force) {
  const auto store = SandboxStore::open();
  if (!store.ok()) return fail(store.error());
  int status = 0;
  std::vector<SandboxRecord> records;
  for (const std::string& selector : selectors) {
    auto record = find_sandbox(context, selector);
    if (record.ok()) {
      records.push_back(std::move(record).value());
    } else {
      status = fail(record.error());
    }
  }
  for (const Stopped& stopped : stop_sandboxes(*store, records, force)) {
    const std::string who = stopped.record.name + " (" + stopped.record.id + ")";
    if (!stopped.done.ok()) {
      status = fail(stopped.done.error().context(who));
    } else if (stopped.was_running) {
      print_line("stopped " + who);
    } else {
      print_line(who + " had ended");
    }
  }
  return status;
}

}  // namespace

void add_stop(CLI::App& app, Context& context) {
  struct Options {
    std::vector<std::string> selectors;
    bool force = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("stop", "Stop sandboxes, all at once; their changes are kept");
  command->add_option("S", options->selectors, "Sandboxes: id, name or last")->required();
  command->add_flag("--force", options->force, "Without the grace time");
  command->callback([&context, options] {
    context.action = [&context, options] {
      return stop(context, options->selectors, options->force);
    };
  });
}

}  // namespace cofferdam::orchestrator::cli
