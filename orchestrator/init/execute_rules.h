// Which programs may be executed, through Landlock (landlock(7)): hygiene, no boundary. A program
// that may be executed can read another one and do what it says; what is written to memory is no
// file.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/os/unique_fd.h"

namespace cofferdam::init {

// A ruleset that lets these files, and what lies below these directories, be executed, and the
// dynamic loaders of the system: the kernel executes one for each program. Renaming between
// directories stays as it is. An error where a path does not exist.
Result<os::UniqueFd> make_execute_rules(const std::vector<std::string>& paths);

// For this thread and all that come of it; false with errno.
bool enforce_execute_rules(int rules);

}  // namespace cofferdam::init
