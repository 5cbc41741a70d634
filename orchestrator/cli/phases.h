// The phases of a manifest, and then the workload: each is a life of the sandbox of its own, over
// the same layers. No process of a phase is left when the next one starts with other rights.
#pragma once

#include <functional>

#include "orchestrator/cli/supervised.h"

namespace cofferdam::orchestrator::cli {

// The outcome is the workload's, or that of the phase that stopped the run. `running`: supervise(),
// called when the workload itself runs.
RunOutcome run_with_phases(OwnedSandbox* sandbox, const PreparedRun& run,
                           const std::function<void()>& running = {});

}  // namespace cofferdam::orchestrator::cli
