// The end of a transaction, and what becomes of one that was cut short.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/changes/journal.h"

namespace cofferdam::orchestrator::changes {

struct Ending {
  Position position = Position::kBefore;  // where the workspace is now, entirely but for `stuck`
  std::string failure;                    // why it is not where it was to go
  // Paths that somebody changed in that very moment: they stay as they are, and what belongs there
  // lies in `kept`.
  std::vector<StuckStep> stuck;
  std::filesystem::path kept;
  std::string unfinished;  // why the next command has to finish it; the workspace is whole
};

// Carries a transaction out, or takes it back: the phase that says so has been written. Where that
// fails, the other way. Signals that would end the process wait.
Ending bring_to_end(const SandboxRecord& sandbox, Journal& journal, const TransactionPlan& plan,
                    int workspace, Position to, const BeforeAct& before_act);

struct Recovery {
  enum class What : std::uint8_t {
    kNothing,    // nothing was cut short
    kBusy,       // another process merges into this workspace
    kForgotten,  // it had not begun: what was prepared is gone
    kFinished,   // carried out now, or only its last records were missing
    kTakenBack,
  };
  What what = What::kNothing;
  Ending ending;
};

// Brings a merge or undo that was killed to its end, one way or the other. The caller holds the
// sandbox's lock.
Result<Recovery> recover_merge(const SandboxRecord& sandbox, const BeforeAct& before_act = {});

}  // namespace cofferdam::orchestrator::changes
