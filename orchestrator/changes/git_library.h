// libgit2, started once for the life of the process: each start reads the system's certificates
// (measured: 4 ms), which nothing here needs.
#pragma once

#include <string>

namespace cofferdam::orchestrator::changes {

// Before any call of libgit2; cheap when it runs already.
void use_git_library();

// Why libgit2 did not open a repository, on the thread where it just failed to: its words, or,
// where the names of objects there are SHA-256, ours with the remedy.
std::string why_not_opened();

}  // namespace cofferdam::orchestrator::changes
