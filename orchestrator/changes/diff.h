// Diff: a sandbox's changes for people, risky ones first. Everything from the sandbox is escaped.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/changes/binary_hunk.h"
#include "orchestrator/changes/changes.h"

namespace cofferdam::orchestrator::changes {

enum class DiffForm : std::uint8_t { kPatch, kStat, kNameStatus, kJson };

// Only `paths` and what lies below; empty: everything.
Status write_diff(const SandboxRecord& sandbox, DiffForm form,
                  const std::vector<std::string>& paths, bool colour, const Sink& out);

}  // namespace cofferdam::orchestrator::changes
