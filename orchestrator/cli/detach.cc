// `cofferdam run -d`: the supervisor goes on in the background, and what its command prints goes to
// the file `output` of the sandbox.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "common/base/escape.h"
#include "common/os/background.h"
#include "common/os/files.h"
#include "orchestrator/cli/phases.h"
#include "orchestrator/cli/run.h"
#include "orchestrator/cli/supervised.h"
#include "orchestrator/cli/surroundings.h"

namespace cofferdam::orchestrator::cli {
namespace {

constexpr std::uint64_t kMostOutput = 16ULL << 20U;
// Ends what the supervisor told before it was ready; no message has this character.
constexpr char kReady = '\x06';

int supervise_in_background(const RunOptions& options, const SandboxStore& store, PreparedRun run,
                            os::UniqueFd to_starter) {
  if (!os::replace_standard_descriptors(to_starter.get()).ok()) return kExitFailed;
  // A file on the user's disk: the manifest's limit, and never without one.
  auto& limit = run.plan.limits.output_bytes;
  if (!limit || *limit > kMostOutput) limit = kMostOutput;
  auto created = create_sandbox(store, run);
  if (!created.ok()) return fail(created.error());
  OwnedSandbox sandbox = std::move(created).value();
  auto output = os::open_file(sandbox.record.output(), O_WRONLY | O_APPEND | O_CREAT);
  if (!output.ok()) return fail(output.error());
  // The services keep the stderr that they start with: it must not be the starter's.
  if (!os::replace_standard_descriptors(output->get()).ok()) return kExitFailed;
  bool ready = false;
  const auto running = [&] {
    ready = true;
    // A starter that went away meanwhile never learned the id: nothing is to go on in its name.
    if (!os::write_all(to_starter.get(), std::string(1, kReady)).ok()) (void)::raise(SIGTERM);
    to_starter.reset();
  };
  const RunOutcome outcome = run_with_phases(&sandbox, run, running);
  if (!outcome.message.empty()) (void)fail(outcome.message);
  if (!ready) {
    const std::string why = outcome.message.empty() ? "stopped before it ran" : outcome.message;
    (void)os::write_all(to_starter.get(), "cofferdam: " + escape_for_terminal(why, true) + "\n")
        .ok();
    return kExitFailed;
  }
  if (!options.remove) return 0;
  const auto changes = count_changes(sandbox.record);
  if (!changes.ok() || *changes > 0) return 0;
  return store.remove(std::move(sandbox)).ok() ? 0 : kExitFailed;
}

}  // namespace

int carry_out_detached(const RunOptions& options, const SandboxStore& store,
                       const PreparedRun& run) {
  for (const PlanLine& line : run.plan.lines) {
    if (line.topic == "note") note(line.text);
  }
  std::fflush(nullptr);
  auto side = os::fork_to_background();
  if (!side.ok()) return fail(side.error());
  if (side->in_child) {
    return supervise_in_background(options, store, run, std::move(side->to_starter));
  }
  std::string told = side->report;
  const bool ready = !told.empty() && told.back() == kReady;
  if (ready) told.pop_back();
  std::fputs(told.c_str(), stderr);  // escaped by whoever wrote it
  if (!ready) return told.empty() ? fail("the supervisor ended before it was ready") : kExitFailed;
  if (options.json) {
    print_json({{"sandbox", run.plan.sandbox_id}, {"name", run.plan.sandbox_name}});
  } else {
    print_line(run.plan.sandbox_id);
  }
  return 0;
}

}  // namespace cofferdam::orchestrator::cli
