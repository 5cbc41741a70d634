// Checkpoints of a sandbox: of all its mounts together, whether it runs or has ended.
//
// A running one is frozen by its fsproxy; one that has ended by whoever owns it. The first mount
// (the workspace) is the one whose checkpoints count: others may have further layers where
// something was killed between two of them.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/layer/checkpoint_table.h"
#include "orchestrator/sandbox_store.h"

namespace cofferdam::orchestrator {

// The layer directories that the sandbox writes to and that were ever used, the workspace's first.
Result<std::vector<std::filesystem::path>> layers_of(const SandboxRecord& sandbox);

// Newest first.
Result<std::vector<layer::Checkpoint>> checkpoints_of(const SandboxRecord& sandbox);
// By name or id (the newest of that name), or the newest where `selector` is empty.
Result<layer::Checkpoint> find_checkpoint(const SandboxRecord& sandbox, std::string_view selector);

// How long an automatic one waits for files that are written past fsproxy.
inline constexpr std::chrono::milliseconds kBriefPatience{200};
// Asks the running sandbox's fsproxy for one. `patience`: for files that are written past it; none:
// as long as it usually waits.
Result<layer::Checkpoint> checkpoint_running(
    const SandboxRecord& sandbox, std::string_view name,
    std::optional<std::chrono::milliseconds> patience = std::nullopt);
// Of one that has ended, by its owner.
Result<layer::Checkpoint> checkpoint_ended(const SandboxRecord& sandbox, const std::string& name);

// The sandbox, which has ended and is the caller's, shows what it showed at that checkpoint; what
// came after it is removed. A kill leaves all mounts as before, or finish_rollback() brings all of
// them there.
Status roll_back(const SandboxRecord& sandbox, const layer::Checkpoint& target);
bool has_unfinished_rollback(const SandboxRecord& sandbox);
// An error with the remedy while it is there: what is done now would be undone by it.
Status in_no_rollback(const SandboxRecord& sandbox);
Status finish_rollback(const SandboxRecord& sandbox);

// All checkpoints of it become one. How many there were.
Result<std::size_t> squash(const SandboxRecord& sandbox);

// A new sandbox, ended like the other, that shows what that one showed at its newest checkpoint.
Result<SandboxRecord> fork(const SandboxStore& store, const SandboxRecord& sandbox,
                           const std::string& name);
}  // namespace cofferdam::orchestrator
