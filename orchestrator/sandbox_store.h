// SandboxStore: the state directory, one directory per sandbox, owned by a held flock.
//
// `${XDG_STATE_HOME:-~/.local/state}/cofferdam/sandboxes/<id>/`. A sandbox is created and locked as
// `.<id>.tmp` and then renamed into place; whoever holds the lock of `lock` in it owns it. A free
// lock on a sandbox that has not ended is an orphan, and only such is reaped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "common/os/file_lock.h"

namespace cofferdam::orchestrator {

// egressproxy's control socket in a sandbox's directory.
inline constexpr const char* kEgressControlName = "control";
// The supervisor's socket in it, for further commands (engine/operation_messages.h).
inline constexpr const char* kOperationsName = "operations";
// fsproxy's.
inline constexpr const char* kFilesControlName = "fs-control";

enum class SandboxState : std::uint8_t { kPending, kRunning, kStopping, kTerminated, kFailed };
std::string_view to_text(SandboxState state);

// A new random id: 16 lower-case hexadecimal digits.
Result<std::string> make_sandbox_id();
// [a-z0-9][a-z0-9_.-]{0,62}
bool is_sandbox_name(std::string_view name);

// `state.json`.
struct SandboxRecord {
  std::string id;    // 16 lower-case hexadecimal digits
  std::string name;  // [a-z0-9][a-z0-9_.-]{0,62}
  SandboxState state = SandboxState::kPending;
  std::string workspace;  // absolute path outside = inside
  std::string engine;     // native | docker
  std::string manifest;   // digest
  std::string created;    // RFC 3339
  std::string ended;      // RFC 3339 or empty
  std::string message;    // why it failed, or empty
  std::optional<int> exit_status;
  std::vector<std::string> argv;
  std::uint32_t uid = 0;  // who started it
  std::int64_t supervisor_pid = 0;
  std::uint64_t supervisor_start_ticks = 0;  // field 22 of /proc/<pid>/stat
  std::string boot_id;
  Json resources =
      Json::object();  // what reap must undo: {"containers":[…],"mounts":[…],"cgroups":[…]}

  std::filesystem::path directory;  // not stored

  std::filesystem::path upper() const { return directory / "upper"; }
  std::filesystem::path meta() const { return directory / "meta"; }
  std::filesystem::path events() const { return directory / "events.jsonl"; }
  std::filesystem::path fs_policy() const { return directory / "fs.json"; }
  std::filesystem::path egress_policy() const { return directory / "egress.json"; }
  // There while egress.json is a phase's: what it allows is not the sandbox's.
  std::filesystem::path phase_mark() const { return directory / "phase"; }
  // An error, with the remedy, while it is there.
  Status in_no_phase() const;
  std::filesystem::path grants() const { return directory / "grants.json"; }
  // What the commands of a detached sandbox print.
  std::filesystem::path output() const { return directory / "output"; }
  bool ended_for_good() const {
    return state == SandboxState::kTerminated || state == SandboxState::kFailed;
  }
};

// A sandbox whose lock this process holds.
class OwnedSandbox final {
 public:
  OwnedSandbox(SandboxRecord owned, os::FileLock lock)
      : record(std::move(owned)), lock_(std::move(lock)) {}
  SandboxRecord record;
  // Writes state.json atomically; only legal transitions (pending → running → stopping →
  // terminated | failed, and any → failed).
  Status set_state(SandboxState state);
  // An ended sandbox whose namespaces are made again over its layers: pending, and this process's.
  Status begin_again();
  Status save() const;

 private:
  os::FileLock lock_;
};

class SandboxStore final {
 public:
  // The caller's own store; the directory is made 0700 where it is missing.
  static Result<SandboxStore> open();
  explicit SandboxStore(std::filesystem::path root) : root_(std::move(root)) {}

  const std::filesystem::path& root() const { return root_; }

  // Newest first. A directory whose state.json cannot be read is listed as failed with the message.
  Result<std::vector<SandboxRecord>> list() const;
  // By id, unique id prefix (>= 4), name (the newest of that name), or "last" (the newest of
  // `workspace` when it has one, else the newest).
  Result<SandboxRecord> find(std::string_view selector,
                             const std::filesystem::path& workspace) const;
  // The same sandbox as it is now; ENOENT when it was removed.
  Result<SandboxRecord> reload(const SandboxRecord& record) const;
  // Makes the directory with the layers of workspace and HOME, owned by this process. The id is
  // made where it is empty; a name that is empty is the id.
  Result<OwnedSandbox> create(SandboxRecord record) const;
  // Nothing when somebody else holds it.
  Result<std::optional<OwnedSandbox>> try_own(const SandboxRecord& record) const;
  Status remove(OwnedSandbox sandbox) const;
  // Directories of creations and removals that were cut short and that nobody owns any more.
  Status remove_leftovers() const;

 private:
  std::filesystem::path root_;
};

}  // namespace cofferdam::orchestrator
