// Modes of a sandbox after its start: read-only, workspace, open. A switch is a person's act with a
// reason; the sandbox's directory keeps each, and each is an event before it holds.
//
// What holds: the last switch, over the command line, over the manifest, over the user's default.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "common/os/file_lock.h"
#include "orchestrator/plan.h"
#include "orchestrator/sandbox_store.h"

namespace cofferdam::orchestrator {

struct ModeSwitch {
  std::string from;
  std::string to;
  std::string who;
  std::string why;
  std::string when;      // RFC 3339
  std::string manifest;  // the digest of the rights with it
};

// In order; none for a sandbox that was never switched.
Result<std::vector<ModeSwitch>> read_mode_switches(const SandboxRecord& sandbox);
Json mode_switches_json(const std::vector<ModeSwitch>& switches);

// The mode that holds: the last switch, else what the sandbox was started with.
Result<std::string> mode_of(const SandboxRecord& sandbox);

struct ModeRequest {
  std::string to;
  std::string who;
  std::string why;
};

// Of a running sandbox only the network changes, at once: between `workspace` and `open`; its files
// stay as they were mounted, so that any other switch is an error with its remedy. One that has
// ended starts with it at the next `exec`. A switch to the mode that holds is an error. After an
// error the rights are as they were.
Result<ModeSwitch> switch_mode(const SandboxRecord& sandbox, const ModeRequest& request);

// The lock of a sandbox's rights: who holds it from reading them until its state says that it
// starts, starts with all of them.
Result<os::FileLock> lock_rights(const SandboxRecord& sandbox);

// A plan that is to start again: as the sandbox's last switch says. Layers that it needs now are
// made. Nothing changes without a switch.
Status apply_last_mode(const SandboxRecord& sandbox, Plan* plan);

// Pure: the mode after these events (run_started, mode_switched), in their order; a switch that was
// taken back (mode_switch_failed) does not count.
std::string replay_mode(const std::vector<Json>& events);

}  // namespace cofferdam::orchestrator
