#include "orchestrator/changes/git_library.h"

#include <git2.h>

namespace cofferdam::orchestrator::changes {

void use_git_library() {
  // Never shut down: other objects of the library may outlive whoever started it.
  [[maybe_unused]] static const int kStarted = git_libgit2_init();
}

}  // namespace cofferdam::orchestrator::changes
