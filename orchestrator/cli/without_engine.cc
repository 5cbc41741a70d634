// A build without the engines refuses to run anything.
#include "orchestrator/supervisor.h"

namespace cofferdam::orchestrator {

int RunOutcome::exit_status() const {
  return 125;
}

Result<RunOutcome> supervise(const Plan&, OwnedSandbox&, log::EventLog&) {
  return Error("this build has no engine");
}

}  // namespace cofferdam::orchestrator
