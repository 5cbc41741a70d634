// Export: one patch for stock `git apply --binary`, and a manifest of every change and omission.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "orchestrator/changes/binary_hunk.h"
#include "orchestrator/changes/changes.h"

namespace cofferdam::orchestrator::changes {

struct ExportReport {
  Json manifest;
  std::uint64_t patch_bytes = 0;
  std::size_t exported = 0;
  std::vector<Omission> not_in_patch;  // changes, or parts of them, that the patch does not hold
  // Paths whose content, which the patch holds as it is, brings a secret along; and which.
  std::vector<std::pair<std::string, std::string>> secrets;
  std::vector<Omission> omissions;
  std::vector<Ignored> ignored;
};

// Writes the patch to `out`.
Result<ExportReport> export_patch(const SandboxRecord& sandbox, const Sink& out);

}  // namespace cofferdam::orchestrator::changes
