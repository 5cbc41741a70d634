#include "orchestrator/engine/program_path.h"

#include <sys/stat.h>
#include <unistd.h>

#include <string>

namespace cofferdam::orchestrator {

Result<std::filesystem::path> find_own_program(std::string_view name) {
  std::error_code fault;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", fault);
  if (fault) return Error::from_errno("/proc/self/exe", fault.value());
  const auto directory = self.parent_path();
  for (const auto& candidate :
       {directory / name, directory.parent_path() / "libexec" / "cofferdam" / name}) {
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return Error(std::string(name) + " is neither beside " + self.string() +
               " nor in ../libexec/cofferdam: the installation is incomplete");
}

Result<std::filesystem::path> find_launcher() {
  for (const char* candidate : {"/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap"}) {
    struct stat st {};
    if (::stat(candidate, &st) != 0 || !S_ISREG(st.st_mode)) continue;
    if (st.st_uid != 0 || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0) continue;
    return std::filesystem::path(candidate);
  }
  return Error("bubblewrap is not installed (apt install bubblewrap)");
}

}  // namespace cofferdam::orchestrator
