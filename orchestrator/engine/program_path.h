// Where our own programs and the launcher are.
#pragma once

#include <filesystem>
#include <string_view>

#include "common/base/result.h"

namespace cofferdam::orchestrator {

// cofferdam-fsproxy and the like: beside the running program, else in libexec/cofferdam beside its
// bin directory. The search path is never used.
Result<std::filesystem::path> find_own_program(std::string_view name);

// bwrap: only where the system installs it and only root-owned.
Result<std::filesystem::path> find_launcher();

}  // namespace cofferdam::orchestrator
