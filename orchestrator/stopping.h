// Ending sandboxes that others supervise, and telling whether one runs.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/sandbox_store.h"

namespace cofferdam::orchestrator {

struct Stopped {
  SandboxRecord record;  // as it was
  bool was_running = false;
  Status done;  // why it does not count as ended
};

// Asks all supervisors to stop (`force`: without the grace time), waits for all of them together,
// kills one that does not come to its end within its sandbox's grace time and `kStopPatience`, and
// removes what it left. Never signals a process that is not the sandbox's supervisor.
inline constexpr std::chrono::seconds kStopPatience{20};
std::vector<Stopped> stop_sandboxes(const SandboxStore& store,
                                    const std::vector<SandboxRecord>& records, bool force);

}  // namespace cofferdam::orchestrator
