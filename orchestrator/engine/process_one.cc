#include "orchestrator/engine/process_one.h"

#include <signal.h>

namespace cofferdam::orchestrator {

void end_process_one(const os::ProcessHandle& process, Services* services) {
  constexpr std::chrono::milliseconds kPatience{500};
  constexpr std::chrono::seconds kLongest{10};
  (void)process.signal(SIGKILL).ok();
  if (!process.ended_within(kPatience)) {
    if (services != nullptr) services->kill(Services::Which::kFsproxy);
    (void)process.ended_within(kLongest);
  }
}

}  // namespace cofferdam::orchestrator
