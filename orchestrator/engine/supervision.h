// The time between a sandbox's start and its end: the main command, its stdio, further commands,
// the user's signals, the services' lives, refused system calls, the time limit.
#pragma once

#include <functional>

#include "common/base/result.h"
#include "common/log/event_log.h"
#include "common/os/signal_fd.h"
#include "orchestrator/engine/engine.h"
#include "orchestrator/plan.h"
#include "orchestrator/supervisor.h"

namespace cofferdam::orchestrator {

// `running` is called once, when the workload has been started and further commands are taken.
// Returns when no process of the workload is left and everything that it wrote has been passed on
// (when it was told to stop: as far as the user took it).
Result<RunOutcome> run_workload(const Plan& plan, OwnedSandbox& sandbox, log::EventLog& events,
                                Engine& engine, const os::SignalFd& signals,
                                const std::function<void()>& running);

}  // namespace cofferdam::orchestrator
