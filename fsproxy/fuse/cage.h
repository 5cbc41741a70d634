// The cage: what fsproxy gives up before it serves. Whoever breaks into it through the wire finds
// the layers and nothing else.
#pragma once

#include "common/base/result.h"
#include "fsproxy/fuse/policy_file.h"

namespace cofferdam::fsproxy {

// For this thread and those that it starts later. An error means: do not serve.
//
// Landlock and no new privileges: what this process may open, and its children.
Status restrict_files(const FsPolicy& policy);
// Then: few capabilities and few system calls for this process alone.
Status enter_cage();

}  // namespace cofferdam::fsproxy
