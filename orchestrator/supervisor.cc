#include "orchestrator/supervisor.h"

#include <poll.h>
#include <signal.h>

#include <memory>

#include "common/os/pidfd.h"
#include "common/os/pipes.h"
#include "common/os/signal_fd.h"
#include "orchestrator/engine/engine.h"
#include "orchestrator/engine/supervision.h"

namespace cofferdam::orchestrator {
namespace {

RunOutcome interrupted_by(int number) {
  return {Ending::kInterrupted, number, "stopped before the workload started"};
}

// Children of children become ours for the time of the run, so that none is left unreaped.
class Subreaper final {
 public:
  Subreaper() { (void)os::become_subreaper(true).ok(); }
  ~Subreaper() { (void)os::become_subreaper(false).ok(); }
  Subreaper(const Subreaper&) = delete;
  Subreaper& operator=(const Subreaper&) = delete;
};

// The same file under the name that docs/events.md gives to what engines record.
Result<std::unique_ptr<log::EventLog>> make_engine_events(const Plan& plan,
                                                          const log::EventLog& events) {
  TRY_ASSIGN(os::UniqueFd fd, os::duplicate_fd(events.fd()));
  return std::make_unique<log::EventLog>(
      std::move(fd),
      log::EventContext{plan.sandbox_id, plan.operation_id, plan.manifest_digest, "engine"});
}

}  // namespace

int RunOutcome::exit_status() const {
  switch (ending) {
    case Ending::kExited:
      return status;
    case Ending::kSignalled:
    case Ending::kInterrupted:
      return 128 + status;
    case Ending::kTimedOut:
      return 124;
    case Ending::kNotFound:
      return 127;
    case Ending::kCannotRun:
      return 126;
    case Ending::kBroken:
      return 125;
  }
  return 125;
}

Result<RunOutcome> supervise(const Plan& plan, OwnedSandbox& sandbox, log::EventLog& events,
                             const std::function<void()>& running) {
  // A terminal that is resized, or a reader that goes away, is no wish to stop the start.
  TRY_ASSIGN(const os::SignalFd stops, os::SignalFd::create({SIGINT, SIGTERM, SIGHUP, SIGQUIT}));
  TRY_ASSIGN(const os::SignalFd signals,
             os::SignalFd::create({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGPIPE}));
  const Subreaper subreaper;
  TRY_ASSIGN(const auto engine_events, make_engine_events(plan, events));
  TRY_ASSIGN(const std::unique_ptr<Engine> engine,
             make_engine({plan, sandbox, *engine_events, stops.fd()}));
  Runner runner;
  if (const auto started = runner.apply(engine->start_steps()); !started.ok()) {
    if (started.error().error_number() != EINTR) return started.error();
    return interrupted_by(stops.next().value_or(SIGTERM));
  }
  TRY(sandbox.set_state(SandboxState::kRunning));
  auto outcome = run_workload(plan, sandbox, *engine_events, *engine, signals, running);
  for (const std::string& limit : engine->limit_hits()) {
    (void)engine_events->write("limit", {{"limit", limit}}).ok();
  }
  runner.undo_all();
  sandbox.record.resources.erase("cgroups");
  TRY(sandbox.save());
  return outcome;
}

}  // namespace cofferdam::orchestrator
