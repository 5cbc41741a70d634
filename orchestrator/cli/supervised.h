// One life of a sandbox, from its record's point of view: the events around it, the supervisor, and
// the end of the record.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "orchestrator/cli/run.h"
#include "orchestrator/sandbox_store.h"
#include "orchestrator/supervisor.h"

namespace cofferdam::orchestrator::cli {

// Makes the sandbox's directory with everything that a later command needs.
Result<OwnedSandbox> create_sandbox(const SandboxStore& store, const PreparedRun& run);

// What a life is recorded as.
struct Operation {
  const char* started = "run_started";
  const char* ended = "run_ended";
  Json fields = Json::object();  // of the first event, beside the usual
  // What is recorded after it: event, fields.
  std::vector<std::pair<std::string, Json>> further;
};
// A first life: its secrets, mounts and rules are told.
Operation run_operation(const PreparedRun& run);

// Runs the plan in the sandbox to its end. `running`: supervise().
RunOutcome run_in_sandbox(OwnedSandbox* sandbox, const Plan& plan, const Operation& operation,
                          const std::function<void()>& running = {});

}  // namespace cofferdam::orchestrator::cli
