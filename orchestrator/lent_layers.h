// Layers that several sandboxes stand on: each that does has a file in `users/` of the layer
// directory that they belong to, and a `layers/<n>.ref` that says where they lie. When their owner
// is removed, they stay in `lent/` beside the directory of sandboxes until the last user is gone.
#pragma once

#include <filesystem>

#include "common/base/result.h"
#include "common/os/file_lock.h"
#include "orchestrator/sandbox_store.h"

namespace cofferdam::orchestrator {

std::filesystem::path lent_root(const std::filesystem::path& sandboxes);

// Forks and removals one after the other.
Result<os::FileLock> lock_lent(const std::filesystem::path& sandboxes);

// Under the lock: the sandbox uses nothing of others any more.
Status give_back(const std::filesystem::path& sandboxes, const SandboxRecord& sandbox);

// Before the directory of a sandbox goes: layers that others stand on are kept, and what it stood
// on is given back. Whether the directory is gone by that already.
Result<bool> release_layers(const std::filesystem::path& sandboxes, const SandboxRecord& sandbox);

}  // namespace cofferdam::orchestrator
