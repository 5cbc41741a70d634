// The checkpoint that a sandbox gets by itself before `exec` and before `merge`.
//
// A way back, not a boundary: what prevents one is told and recorded, and the act goes on. At most
// kMostAutomatic of them: in a sandbox that has ended they are folded into one then, unless the
// user's own checkpoints or a fork stand among them; while it runs no further one is made.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "common/layer/checkpoint_table.h"
#include "orchestrator/sandbox_store.h"

namespace cofferdam::orchestrator {

// Their names begin so, and no user's does.
inline constexpr std::string_view kAutomaticPrefix = "auto.";
inline constexpr std::size_t kMostAutomatic = 16;

struct KeptState {
  std::string checkpoint;  // holds what the sandbox shows now; empty: none does
  bool made = false;       // by this call; else nothing has changed since it
  std::string fault;       // why there is none; also empty where there is nothing to keep
};

// `act`: exec, merge. The sandbox runs: asks its fsproxy, which records it.
KeptState keep_running_state(const SandboxRecord& sandbox, std::string_view act);
// It has ended and is the caller's.
KeptState keep_ended_state(const SandboxRecord& sandbox, std::string_view act);

}  // namespace cofferdam::orchestrator
