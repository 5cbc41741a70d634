// libgit2, started once for the life of the process: each start reads the system's certificates
// (measured: 4 ms), which nothing here needs.
#pragma once

namespace cofferdam::orchestrator::changes {

// Before any call of libgit2; cheap when it runs already.
void use_git_library();

}  // namespace cofferdam::orchestrator::changes
