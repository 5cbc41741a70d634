// Which process a number means: pid, start time and boot together name one process for ever.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "common/base/result.h"
#include "common/os/pidfd.h"

namespace cofferdam::os {

// Field 22 of /proc/<pid>/stat.
Result<std::uint64_t> start_ticks(pid_t pid);
// /proc/sys/kernel/random/boot_id.
Result<std::string> boot_id();

// The process, if it is still the one that is meant; ESRCH when it has ended (its number may be
// another's by now).
Result<ProcessHandle> open_process(pid_t pid, std::uint64_t ticks, const std::string& boot);

}  // namespace cofferdam::os
