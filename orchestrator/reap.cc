#include "orchestrator/reap.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "common/log/event_log.h"
#include "common/os/files.h"
#include "common/os/unmount.h"
#include "orchestrator/engine/docker/remains.h"
#include "orchestrator/engine/docker/run_directory.h"

namespace cofferdam::orchestrator {
namespace {

namespace fs = std::filesystem;

// The processes that still lie in the group; it is the sandbox's alone.
void kill_processes(const fs::path& directory) {
  if (auto fd = os::open_file(directory / "cgroup.kill", O_WRONLY); fd.ok()) {
    (void)os::write_all(fd->get(), "1").ok();
    return;
  }
  auto text = os::read_file(directory / "cgroup.procs");
  if (!text.ok()) return;
  const char* at = text->data();
  const char* const end = at + text->size();
  while (at < end) {
    pid_t pid = 0;
    const auto [rest, error] = std::from_chars(at, end, pid);
    if (error != std::errc()) return;
    if (pid > 1) (void)::kill(pid, SIGKILL);
    at = rest + 1;
  }
}

Status remove_cgroup(const fs::path& directory) {
  std::error_code code;
  if (!directory.string().starts_with("/sys/fs/cgroup/") || !fs::exists(directory, code)) return {};
  for (int attempt = 0; attempt < 50; ++attempt) {
    kill_processes(directory);
    if (::rmdir(directory.c_str()) == 0 || errno == ENOENT) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return Error::from_errno("rmdir " + directory.string());
}

// Only directories of ours: below a runtime directory named cofferdam.
Status remove_directory(const fs::path& directory) {
  const fs::path normal = directory.lexically_normal();
  if (normal != directory || normal.string().find("/cofferdam/") == std::string::npos) {
    return Error("not a directory of ours: " + directory.string());
  }
  // Mount points of FUSE may lie in it: never removed as a tree.
  if (normal.parent_path() == docker::kRunRoot) {
    return docker::remove_run_directory(docker::RunLayout(normal.filename().string()));
  }
  return os::remove_tree(directory);
}

void undo_each(const SandboxRecord& record, const char* kind,
               const std::function<Status(const std::string&)>& undo, Reaped* reaped) {
  const auto list = record.resources.find(kind);
  if (list == record.resources.end() || !list->is_array()) return;
  // The last made goes first.
  for (auto item = list->rbegin(); item != list->rend(); ++item) {
    if (!item->is_string()) continue;
    const auto name = item->get<std::string>();
    const std::string shown = std::string(kind) + " " + name;
    if (Status done = undo(name); done.ok()) {
      reaped->undone.push_back(shown);
    } else {
      reaped->failed.push_back(shown + ": " + done.error().message());
    }
  }
}

void record_event(const SandboxRecord& record, const Reaped& reaped) {
  auto fd = os::open_file(record.events(), O_WRONLY | O_APPEND | O_CREAT);
  if (!fd.ok()) return;
  log::EventLog events(std::move(fd).value(), {record.id, "", record.manifest, "supervisor"});
  (void)events.write("reaped", {{"resources", reaped.undone}, {"failed", reaped.failed}}).ok();
}

}  // namespace

Reaped undo_resources(const SandboxRecord& record) {
  Reaped reaped{record.id, record.name, {}, {}};
  undo_each(
      record, "containers",
      [&](const std::string& name) { return docker::remove_owned_container(record, name); },
      &reaped);
  undo_each(
      record, "mounts", [](const std::string& path) { return os::unmount_if_mounted(path); },
      &reaped);
  undo_each(
      record, "cgroups", [](const std::string& path) { return remove_cgroup(path); }, &reaped);
  undo_each(
      record, "directories", [](const std::string& path) { return remove_directory(path); },
      &reaped);
  return reaped;
}

Reaped reap_one(OwnedSandbox* sandbox) {
  Reaped reaped = undo_resources(sandbox->record);
  record_event(sandbox->record, reaped);
  if (!reaped.failed.empty()) return reaped;
  sandbox->record.resources = Json::object();
  sandbox->record.message = "its supervisor died; what it left was removed";
  if (Status saved = sandbox->set_state(SandboxState::kFailed); !saved.ok()) {
    reaped.failed.push_back(saved.error().message());
  }
  return reaped;
}

Result<std::vector<Reaped>> reap_orphans(const SandboxStore& store) {
  TRY_ASSIGN(const std::vector<SandboxRecord> records, store.list());
  std::vector<Reaped> out;
  for (const SandboxRecord& record : records) {
    if (record.ended_for_good()) continue;
    auto owned = store.try_own(record);
    if (!owned.ok() || !*owned || (**owned).record.ended_for_good()) continue;
    OwnedSandbox sandbox = std::move(**owned);
    out.push_back(reap_one(&sandbox));
  }
  TRY_ASSIGN(const auto strays, docker::remove_stray_containers(store));
  for (const std::string& name : strays) out.push_back({name, name, {"containers " + name}, {}});
  TRY(store.remove_leftovers());
  return out;
}

}  // namespace cofferdam::orchestrator
