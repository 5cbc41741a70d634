#include "orchestrator/changes/git_library.h"

#include <git2.h>

namespace cofferdam::orchestrator::changes {

void use_git_library() {
  // Never shut down: other objects of the library may outlive whoever started it.
  [[maybe_unused]] static const int kStarted = git_libgit2_init();
}

std::string why_not_opened() {
  const git_error* error = git_error_last();
  const std::string said =
      error != nullptr && error->message != nullptr ? error->message : "unknown";
  // Older versions name the extension, newer ones its value.
  if (said.find("objectformat") == std::string::npos &&
      said.find("object format") == std::string::npos) {
    return said;
  }
  return "it names its objects by SHA-256, which is not supported. Nothing was written, and the "
         "sandbox keeps what it made. Remedy: work in a copy of the repository with SHA-1 names "
         "(git init COPY; git fast-export --all | git -C COPY fast-import)";
}

}  // namespace cofferdam::orchestrator::changes
