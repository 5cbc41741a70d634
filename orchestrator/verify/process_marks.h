// Processes of this machine that an attack left behind.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace cofferdam::orchestrator::verify {

// Whose command line begins with `mark`.
std::vector<pid_t> find_marked(const std::string& mark);

}  // namespace cofferdam::orchestrator::verify
