// Secrets that a manifest gives to named commands: read at the start, held in memory alone.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/manifest/manifest.h"
#include "orchestrator/plan.h"

namespace cofferdam::orchestrator {

struct SecretQuery {
  std::vector<std::string> programs;  // argv[0] of every command of the run
  bool all = false;                   // further commands may come: every secret is wanted
  std::filesystem::path workspace;
  std::vector<std::filesystem::path> shown;  // sources of further mounts
};

// Reads the values that are wanted: a file's, a variable of the caller's, or what a command prints
// (30 s at most, started in / with the caller's environment). One line end at the end is no part of
// a value. A file in the workspace or in a mount, one that others may write, a value that is
// shorter than what a redaction can find, one with NUL bytes for a variable, and one that is not
// there are errors.
Result<std::vector<SecretPlan>> read_secrets(const std::vector<SecretRule>& rules,
                                             const SecretQuery& query);

}  // namespace cofferdam::orchestrator
