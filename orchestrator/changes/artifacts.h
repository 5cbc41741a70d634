// Artifacts: files of a sandbox that its manifest names (`artifacts:`), as a tar and a list of what
// is in it and whose it is. Ignored files count too; what never comes home does not.
#pragma once

#include <string>
#include <vector>

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "orchestrator/changes/binary_hunk.h"
#include "orchestrator/changes/changes.h"

namespace cofferdam::orchestrator::changes {

struct ArtifactReport {
  Json manifest;
  std::size_t files = 0;  // files and links
  std::vector<Omission> omissions;
  std::vector<std::string> unmatched;  // patterns that named nothing
};

// Writes the tar to `out`. An error where the sandbox's manifest names no artifacts.
Result<ArtifactReport> export_artifacts(const SandboxRecord& sandbox, const Sink& out);

}  // namespace cofferdam::orchestrator::changes
