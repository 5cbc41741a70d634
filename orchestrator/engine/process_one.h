// Process 1 of a sandbox as the supervisor holds it, and its end.
#pragma once

#include "common/os/pidfd.h"
#include "orchestrator/engine/services.h"

namespace cofferdam::orchestrator {

// Kills process 1 (its pid namespace goes with it) and returns when it is gone. A process that
// waits for an unanswered FUSE request survives SIGKILL: after 500 ms fsproxy is killed, which
// aborts the connection.
void end_process_one(const os::ProcessHandle& process, Services* services);

}  // namespace cofferdam::orchestrator
