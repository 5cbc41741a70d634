// A checkpoint of all mounts of a sandbox in one step, while its workload runs.
//
// The mounts' threads stop between two requests, all uppers are frozen, and they go on; whoever
// waits for a file waits meanwhile. What the workload has written through a mapping, but what is
// still with the kernel, is fetched before. A file that is written past the service (passthrough)
// cannot be taken back from its writer: while there is one, there is no checkpoint (EBUSY).
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "common/layer/checkpoint_table.h"
#include "common/log/event_log.h"
#include "fsproxy/fuse/session.h"

namespace cofferdam::fsproxy {

// How long is waited at most for files that are written past the service, and for the threads.
inline constexpr std::chrono::milliseconds kCheckpointPatience{2000};

// Any thread but those of the mounts. The first session that can write is the one whose checkpoints
// count: a kill leaves all mounts with the new layer, or that one without. `name` may be empty.
Result<layer::Checkpoint> take_checkpoint(const std::vector<std::unique_ptr<Session>>& sessions,
                                          const std::string& name, log::EventLog& events,
                                          std::chrono::milliseconds patience = kCheckpointPatience);

}  // namespace cofferdam::fsproxy
