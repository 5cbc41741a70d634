// The time between a sandbox's start and its end: one workload, its stdio, the user's signals, the
// services' lives, refused system calls, the time limit.
#pragma once

#include "common/base/result.h"
#include "common/log/event_log.h"
#include "common/os/signal_fd.h"
#include "orchestrator/engine/engine.h"
#include "orchestrator/plan.h"
#include "orchestrator/supervisor.h"

namespace cofferdam::orchestrator {

// Returns when no process of the workload is left and everything that it wrote has been passed on
// (when it was told to stop: as far as the user took it).
Result<RunOutcome> run_workload(const Plan& plan, OwnedSandbox& sandbox, log::EventLog& events,
                                Engine& engine, const os::SignalFd& signals);

}  // namespace cofferdam::orchestrator
