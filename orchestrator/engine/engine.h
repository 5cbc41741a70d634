// Engine: what brings one sandbox up to a process 1 that waits for work, and takes it down.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/log/event_log.h"
#include "common/os/unique_fd.h"
#include "orchestrator/engine/pid1_channel.h"
#include "orchestrator/engine/services.h"
#include "orchestrator/plan.h"
#include "orchestrator/runner.h"
#include "orchestrator/sandbox_store.h"

namespace cofferdam::orchestrator {

// What an engine works on; everything outlives it.
struct EngineInput {
  const Plan& plan;
  OwnedSandbox& sandbox;
  log::EventLog& events;
  int interrupt = -1;  // readable: give the start up
};

// Used on the supervisor's thread. After the steps have been applied the other functions may be
// called, until the steps are undone.
class Engine {
 public:
  virtual ~Engine() = default;

  virtual std::vector<Step> start_steps() = 0;

  virtual Pid1Channel& pid1() = 0;
  virtual const os::SeccompListener& listener() const = 0;
  virtual const SeccompPolicy& seccomp() const = 0;
  virtual os::UniqueFd take_terminal() = 0;  // pty master, with -t
  virtual Services& services() = 0;

  // Kills every process of the workload, in the order that DESIGN gives, and returns when none is
  // left. May be called more than once.
  virtual void end_workload() = 0;

  // Limits that were reached: "pids", "memory".
  virtual std::vector<std::string> limit_hits() const = 0;
};

// An engine by the plan's name; an unknown name is an error.
Result<std::unique_ptr<Engine>> make_engine(const EngineInput& input);

}  // namespace cofferdam::orchestrator
