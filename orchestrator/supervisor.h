// The supervisor of one run: starts the services and the workload by the plan's engine, carries
// stdin, stdout, stderr and signals, watches everything, and ends everything in order.
//
// Runs on the calling thread until no process, mount, namespace or container of the run is left.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/base/result.h"
#include "common/log/event_log.h"
#include "orchestrator/plan.h"
#include "orchestrator/sandbox_store.h"

namespace cofferdam::orchestrator {

enum class Ending : std::uint8_t {
  kExited,       // status = the workload's own
  kSignalled,    // status = the signal's number
  kTimedOut,     // 124
  kNotFound,     // 127: no such program inside
  kCannotRun,    // 126
  kInterrupted,  // we were told to stop; status = the signal's number
  kBroken,       // 125: the sandbox failed: a service died, a step failed; message says what
};

struct RunOutcome {
  Ending ending = Ending::kBroken;
  int status = 0;
  std::string message;  // may hold what came from inside: print it escaped
  std::optional<std::uint64_t> output_bytes = {};  // printed by the main command
  // The exit status of `cofferdam run` (DESIGN's table: own, 124, 125, 126, 127, 128+N).
  int exit_status() const;
};

// Errors are those of the start, after everything that was started has been undone. `running` is
// called once, when the workload has been started and further commands are taken.
Result<RunOutcome> supervise(const Plan& plan, OwnedSandbox& sandbox, log::EventLog& events,
                             const std::function<void()>& running = {});

}  // namespace cofferdam::orchestrator
