// Settled: which versions of theirs an earlier merge took home or left by the user's word.
//
// `merged.json` in the sandbox's directory. A path that changes again afterwards has its settled
// version as its base.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "common/base/result.h"
#include "orchestrator/changes/changes.h"
#include "orchestrator/changes/transaction.h"

namespace cofferdam::orchestrator::changes {

struct Settled {
  std::map<std::string, ObjectState> paths;

  // A missing file is empty.
  static Result<Settled> load(const SandboxRecord& sandbox);
  Status save(const SandboxRecord& sandbox) const;
};

// Records what a transaction decided, durably; kBefore: takes that back. Repeatable.
Status settle(const SandboxRecord& sandbox, const std::vector<Settlement>& settled, Position at);

}  // namespace cofferdam::orchestrator::changes
