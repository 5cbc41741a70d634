// Giving up rights: ids, capabilities, files. For services, after their set-up and before the first
// byte of a workload is served. Every step that cannot be done is an error; nothing is skipped
// silently. To be called while the process has one thread.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <vector>

#include "common/base/result.h"

namespace cofferdam::os {

// Started as root: no supplementary groups, these ids for real, effective and saved. Verified.
Status become_user(uid_t uid, gid_t gid);

// Empties the effective, permitted, inheritable and ambient sets, and the bounding set where the
// process may (it must, when it runs as root).
Status drop_capabilities();

// Before become_user, when root: the bounding set can only be emptied with CAP_SETPCAP.
Status drop_bounding_set();

// PR_SET_NO_NEW_PRIVS, PR_SET_DUMPABLE 0, RLIMIT_CORE 0.
Status forbid_privileges_and_dumps();

// What Landlock may do here.
enum class LandlockOutcome : unsigned char { kEnforced, kNotAvailable };
// From now on no file but `readable` (files or trees) can be opened, and those only for reading.
// Descriptors that are open stay usable. kNotAvailable on a kernel without Landlock.
Result<LandlockOutcome> restrict_files(const std::vector<std::filesystem::path>& readable);

}  // namespace cofferdam::os
