// `cofferdam exec`: a further command in a sandbox that runs, or in one that has ended.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/cli/commands.h"
#include "orchestrator/engine/operation_messages.h"

namespace cofferdam::orchestrator::cli {

struct ExecOptions {
  std::string selector;
  std::string timeout;
  std::string tool;
  bool no_checkpoint = false;
  std::vector<std::string> env;
  bool interactive = false;
  bool terminal = false;
};

// What is asked for, whatever state the sandbox is in.
struct ExecPlan {
  ExecRequest request;
  std::map<std::string, std::string> carried;  // --env
  bool interactive = false;
  bool checkpoint = true;  // what the sandbox shows is kept before
};

// Asks the supervisor of the sandbox and carries the command's stdio; the command's outcome. An
// error with EAGAIN: nobody takes commands there (yet, or any more).
Result<RunOutcome> exec_in_running(const SandboxRecord& record, const ExecPlan& plan);

// Makes the namespaces of an ended sandbox again, over its layers, for this command.
Result<RunOutcome> exec_in_ended(OwnedSandbox* sandbox, const SandboxStore& store,
                                 const ExecPlan& plan);

}  // namespace cofferdam::orchestrator::cli
