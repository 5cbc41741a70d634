// The cage: what fsproxy gives up before it serves. Whoever breaks into it through the wire finds
// the layers and nothing else.
#pragma once

#include "common/base/result.h"
#include "fsproxy/fuse/policy_file.h"

namespace cofferdam::fsproxy {

// For this thread and those that it starts later. An error means: do not serve.
Status enter_cage(const FsPolicy& policy);

}  // namespace cofferdam::fsproxy
