// Undo: takes the newest merge of a sandbox back, exactly, or not at all.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/changes/transaction.h"

namespace cofferdam::orchestrator::changes {

struct UndoOptions {
  BeforeAct before_act;               // for tests
  bool objects_in_workspace = false;  // for tests
};

struct UndoReport {
  bool nothing = false;  // no merge that could be taken back
  // What somebody changed since the merge: then nothing is written.
  std::vector<StuckStep> changed;
  std::size_t paths = 0;  // given back
  std::string branch;     // given back too, or empty
  std::string failure;
  std::vector<StuckStep> stuck;
  std::filesystem::path kept;
  std::string warning;

  // 0 undone, 1 changed since or nothing to undo, 125 failed.
  int exit_status() const;
};

// Errors are failures before anything was written. The caller holds the sandbox's lock.
Result<UndoReport> undo_merge(const SandboxRecord& sandbox, const UndoOptions& options = {});

// The report for people; everything from the sandbox escaped.
std::string describe(const UndoReport& report);

}  // namespace cofferdam::orchestrator::changes
