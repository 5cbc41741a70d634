// The policies of the services, as files of the sandbox's directory.
#pragma once

#include <cstdint>

#include "common/base/result.h"
#include "orchestrator/plan.h"
#include "orchestrator/sandbox_store.h"

namespace cofferdam::orchestrator {

// Ids in the user namespace of the FUSE mounts: those of the workload, and those that everything
// that is not its own is shown with.
struct ShownIds {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
};

// Writes fs.json and egress.json.
Status write_policies(const Plan& plan, const SandboxRecord& record, ShownIds shown);

}  // namespace cofferdam::orchestrator
