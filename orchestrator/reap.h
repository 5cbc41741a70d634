// Reaping: what a supervisor that died left behind is undone, and its sandbox is marked failed. Its
// layers are kept: what was written can still be exported.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/sandbox_store.h"

namespace cofferdam::orchestrator {

struct Reaped {
  std::string id;
  std::string name;
  std::vector<std::string> undone;  // for people: "cgroup /sys/fs/…"
  std::vector<std::string> failed;
};

// Every sandbox that has not ended and whose lock is free; nothing else is touched. Leftovers of
// creations and removals go too.
Result<std::vector<Reaped>> reap_orphans(const SandboxStore& store);

// One orphan whose lock the caller has: its remains are removed, and it has failed.
Reaped reap_one(OwnedSandbox* sandbox);

// Undoes record.resources: {"containers": [NAME], "mounts": [PATH], "cgroups":
// [DIRECTORY], "directories": [PATH]}, in this order. What is gone already is fine.
Reaped undo_resources(const SandboxRecord& record);

}  // namespace cofferdam::orchestrator
