#include "orchestrator/modes.h"

#include <fcntl.h>

#include <algorithm>
#include <thread>

#include "common/base/sha256.h"
#include "common/base/text_time.h"
#include "common/log/event_log.h"
#include "common/os/file_lock.h"
#include "common/os/files.h"
#include "common/policy/egress_policy.h"
#include "orchestrator/egress_control.h"

namespace cofferdam::orchestrator {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLockPatience{10};
constexpr const char* kFile = "modes.json";

Json switch_json(const ModeSwitch& one) {
  return {{"from", one.from}, {"to", one.to},     {"who", one.who},
          {"why", one.why},   {"when", one.when}, {"manifest", one.manifest}};
}

Result<Json> stored_json(const fs::path& file) {
  TRY_ASSIGN(const std::string text, os::read_file(file));
  return parse_json(text).context(file.filename().string());
}

// The mode of the network without the sandbox's own word: open, or as the manifest says.
Result<std::string> network_mode(const SandboxRecord& sandbox, const std::string& mode) {
  if (mode == "open") return mode;
  TRY_ASSIGN(const Json manifest, stored_json(sandbox.directory / "manifest.json"));
  return manifest.value("network", Json::object()).value("mode", "enforce");
}

Status check_switch(const SandboxRecord& sandbox, const std::string& from, const std::string& to) {
  if (from == to) return Error("sandbox " + sandbox.id + " is in mode " + to + " already");
  if (sandbox.state == SandboxState::kPending || sandbox.state == SandboxState::kStopping) {
    return Error("sandbox " + sandbox.id + " is starting or stopping; try again");
  }
  const bool files = from == "read-only" || to == "read-only";
  if (sandbox.state == SandboxState::kRunning && files) {
    return Error("sandbox " + sandbox.id +
                 " runs, and its files stay as they were mounted. Remedy: cofferdam stop " +
                 sandbox.id + ", then the switch; cofferdam exec starts it so");
  }
  return {};
}

// The sandbox's egress policy in its new mode, told to its egressproxy where that runs.
Status switch_network(const SandboxRecord& sandbox, const ModeSwitch& made) {
  TRY_ASSIGN(Json policy, stored_json(sandbox.egress_policy()));
  TRY_ASSIGN(policy["mode"], network_mode(sandbox, made.to));
  policy["manifest"] = made.manifest;
  if (auto parsed = policy::EgressPolicy::from_json(policy); !parsed.ok()) return parsed.error();
  const std::string text = canonical_json(policy) + "\n";
  if (sandbox.state == SandboxState::kRunning) {
    auto asked = ask_egressproxy(sandbox, "PUT", "/policy", text);
    if (!asked.ok()) return asked.error();
  }
  return os::write_file_atomic(sandbox.egress_policy(), text);
}

Status make_layer(const fs::path& layer) {
  for (const char* part : {"upper", "work"}) TRY(os::make_directories(layer / part));
  return {};
}

}  // namespace

// The lock of the grants: both are revisions of the same rights.
Result<os::FileLock> lock_rights(const SandboxRecord& sandbox) {
  const auto end = std::chrono::steady_clock::now() + kLockPatience;
  while (true) {
    TRY_ASSIGN(auto lock, os::FileLock::try_acquire(sandbox.directory / "grants.lock"));
    if (lock) return std::move(*lock);
    if (std::chrono::steady_clock::now() >= end) return Error("a right is being changed already");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

Result<std::vector<ModeSwitch>> read_mode_switches(const SandboxRecord& sandbox) {
  std::vector<ModeSwitch> out;
  const auto text = os::read_file(sandbox.directory / kFile);
  if (!text.ok()) {
    if (text.error().error_number() == ENOENT) return out;
    return text.error();
  }
  TRY_ASSIGN(const Json json, parse_json(*text).context(kFile));
  try {
    for (const Json& one : json) {
      out.push_back({one.at("from"), one.at("to"), one.at("who"), one.at("why"), one.at("when"),
                     one.at("manifest")});
    }
  } catch (const Json::exception& error) {
    return Error(error.what()).context(kFile);
  }
  return out;
}

Json mode_switches_json(const std::vector<ModeSwitch>& switches) {
  Json out = Json::array();
  for (const ModeSwitch& one : switches) out.push_back(switch_json(one));
  return out;
}

Result<std::string> mode_of(const SandboxRecord& sandbox) {
  TRY_ASSIGN(const std::vector<ModeSwitch> switches, read_mode_switches(sandbox));
  if (!switches.empty()) return switches.back().to;
  TRY_ASSIGN(const Json manifest, stored_json(sandbox.directory / "manifest.json"));
  return manifest.value("mode", "workspace");
}

Result<ModeSwitch> switch_mode(const SandboxRecord& given, const ModeRequest& request) {
  TRY_ASSIGN(const os::FileLock lock, lock_rights(given));
  // As it is now: it may have started while another switch was made.
  TRY_ASSIGN(const SandboxStore store, SandboxStore::open());
  TRY_ASSIGN(const SandboxRecord sandbox, store.reload(given));
  TRY(sandbox.in_no_phase());
  TRY_ASSIGN(std::vector<ModeSwitch> switches, read_mode_switches(sandbox));
  ModeSwitch made;
  TRY_ASSIGN(made.from, mode_of(sandbox));
  made.to = request.to;
  TRY(check_switch(sandbox, made.from, made.to));
  made.who = request.who;
  made.why = request.why;
  made.when = to_rfc3339(std::chrono::system_clock::now());
  // A revision of the rights: what they were, and what came to them.
  TRY_ASSIGN(const Json policy, stored_json(sandbox.egress_policy()));
  made.manifest = policy.value("manifest", sandbox.manifest);
  const std::string before = made.manifest;
  made.manifest = "sha256:" + to_hex(sha256(canonical_json(switch_json(made))));
  TRY_ASSIGN(const std::string operation, make_sandbox_id());
  // Nothing holds that is not recorded.
  TRY_ASSIGN(os::UniqueFd fd, os::open_file(sandbox.events(), O_WRONLY | O_APPEND));
  log::EventLog events(std::move(fd), {sandbox.id, operation, made.manifest, "supervisor"});
  TRY(events.write("mode_switched", {{"parent", policy.value("operation", "")},
                                     {"from", made.from},
                                     {"to", made.to},
                                     {"sandbox.profile", made.to},
                                     {"who", made.who},
                                     {"why", made.why},
                                     {"previous_manifest", before}}));
  if (Status switched = switch_network(sandbox, made); !switched.ok()) {
    (void)events
        .write("mode_switch_failed",
               {{"from", made.from}, {"to", made.to}, {"message", switched.error().message()}})
        .ok();
    return switched.error();
  }
  switches.push_back(made);
  TRY(os::write_file_atomic(sandbox.directory / kFile,
                            canonical_json(mode_switches_json(switches)) + "\n"));
  return made;
}

Status apply_last_mode(const SandboxRecord& sandbox, Plan* plan) {
  TRY_ASSIGN(const std::vector<ModeSwitch> switches, read_mode_switches(sandbox));
  if (switches.empty()) return {};
  const std::string& mode = switches.back().to;
  TRY_ASSIGN(plan->egress_policy["mode"], network_mode(sandbox, mode));
  const bool writable = mode != "read-only";
  plan->trace["sandbox.profile"] = mode;
  plan->trace["filesystem.write"] = writable ? "copy_on_write" : "none";
  for (MountPlan& mount : plan->mounts) {
    const bool workspace = mount.name == "workspace";
    if (!workspace && mount.name != "gitdir") continue;
    mount.writable = writable;
    const fs::path layer = workspace ? sandbox.directory : sandbox.directory / "gitdir";
    // What it wrote before can still be read, and is kept for review.
    if (writable) mount.layer = layer.string();
    if (mount.layer) TRY(make_layer(*mount.layer));
    for (Json& policy : plan->fs_policy.at("mounts")) {
      if (policy.value("name", "") != mount.name) continue;
      policy["writable"] = writable;
      policy["layer"] = mount.layer ? Json(*mount.layer) : Json();
      policy["record"] = workspace && writable;
    }
  }
  return {};
}

std::string replay_mode(const std::vector<Json>& events) {
  std::string mode;
  for (const Json& event : events) {
    const std::string kind = event.value("event", "");
    if (kind == "run_started") mode = event.value("sandbox.profile", "");
    if (kind == "mode_switched") mode = event.value("to", "");
    if (kind == "mode_switch_failed") mode = event.value("from", "");
  }
  return mode;
}

}  // namespace cofferdam::orchestrator
