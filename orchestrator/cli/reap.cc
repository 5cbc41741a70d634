#include "orchestrator/reap.h"

#include "orchestrator/cli/commands.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/verify/leftovers.h"

namespace cofferdam::orchestrator::cli {
namespace {

int reap() {
  const auto store = SandboxStore::open();
  if (!store.ok()) return fail(store.error());
  const auto reaped = reap_orphans(*store);
  if (!reaped.ok()) return fail(reaped.error());
  bool clean = true;
  for (const Reaped& sandbox : *reaped) {
    print_line("reaped " + sandbox.name + " (" + sandbox.id + "); its changes are kept");
    for (const std::string& text : sandbox.undone) print_line("  removed " + text);
    for (const std::string& text : sandbox.failed) {
      clean = false;
      (void)fail("reap " + sandbox.id + ": " + text);
    }
  }
  const verify::ReapedRanges ranges = verify::reap_ranges(state_directory(*store));
  for (const std::string& path : ranges.removed) {
    print_line("removed " + path + ", of a verify that was killed");
  }
  for (const std::string& text : ranges.failed) {
    clean = false;
    (void)fail("reap " + text);
  }
  if (reaped->empty() && ranges.removed.empty() && clean) print_line("Nothing to reap.");
  return clean ? 0 : kExitFailed;
}

}  // namespace

void add_reap(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("reap", "Remove what dead supervisors left behind");
  command->callback([&context] { context.action = reap; });
}

}  // namespace cofferdam::orchestrator::cli
