#include "orchestrator/checkpoints.h"

#include <fcntl.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/layer/freeze.h"
#include "common/layer/layer_stack.h"
#include "common/layer/squash.h"
#include "common/os/files.h"
#include "common/os/sockets.h"
#include "orchestrator/lent_layers.h"

namespace cofferdam::orchestrator {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kPatience{60};
constexpr const char* kRollback = "rollback";  // in the sandbox's directory: one is under way, to …

std::int64_t now_ns() {
  struct timespec now {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

Result<std::vector<layer::Checkpoint>> chain_of(const fs::path& directory) {
  TRY_ASSIGN(const layer::MetaStore meta, layer::MetaStore::open_for_reading(directory / "meta"));
  return layer::CheckpointTable(meta).chain();
}

Result<layer::MetaStore> open_meta(const fs::path& directory) {
  TRY_ASSIGN(layer::MetaStore meta, layer::MetaStore::open(directory / "meta", now_ns()));
  TRY(layer::recover_layers(directory, meta));
  return meta;
}

// `begun`: the mount, or another one before it, may be at the checkpoint already.
Status roll_back_mount(const fs::path& directory, const std::string& id, bool* begun) {
  TRY_ASSIGN(layer::MetaStore meta, open_meta(directory));
  TRY_ASSIGN(layer::Freeze freeze, layer::Freeze::prepare(directory, meta));
  const auto change = [&]() -> Status {
    TRY(freeze.exchange());
    return freeze.commit_rollback(id);
  };
  const bool before = std::exchange(*begun, true);
  if (Status changed = change(); !changed.ok()) {
    TRY(freeze.take_back());
    *begun = before;
    return changed;
  }
  return layer::recover_layers(directory, meta);
}

Status forget_rollback(const SandboxRecord& sandbox) {
  std::error_code code;
  fs::remove(sandbox.directory / kRollback, code);
  return code ? Status(Error::from_errno("rollback", code.value())) : Status();
}

// Layers go only while nobody begins to stand on them.
Result<os::FileLock> lock_layers(const SandboxRecord& sandbox) {
  return lock_lent(sandbox.directory.parent_path());
}

Status roll_back_all(const SandboxRecord& sandbox, const std::string& id, bool* begun) {
  TRY_ASSIGN(const std::vector<fs::path> layers, layers_of(sandbox));
  // Once more where it is done already: nothing was written since.
  for (const fs::path& directory : layers) TRY(roll_back_mount(directory, id, begun));
  return forget_rollback(sandbox);
}

}  // namespace

Result<std::vector<fs::path>> layers_of(const SandboxRecord& sandbox) {
  std::vector<fs::path> found{sandbox.directory, sandbox.directory / "home"};
  const auto text = os::read_file(sandbox.fs_policy());
  if (text.ok()) {
    TRY_ASSIGN(const Json policy, parse_json(*text).context("fs.json"));
    for (const Json& mount : policy.value("mounts", Json::array())) {
      if (!mount.value("writable", false) || !mount.contains("layer") ||
          !mount["layer"].is_string()) {
        continue;
      }
      const fs::path layer = mount["layer"].get<std::string>();
      if (std::find(found.begin(), found.end(), layer) == found.end()) found.push_back(layer);
    }
  }
  std::erase_if(found, [](const fs::path& layer) {
    std::error_code code;
    return !fs::exists(layer / "meta", code);
  });
  if (found.empty() || found.front() != sandbox.directory) {
    return Error(sandbox.name + " never had a workspace: there is nothing to keep");
  }
  return found;
}

Result<std::vector<layer::Checkpoint>> checkpoints_of(const SandboxRecord& sandbox) {
  return chain_of(sandbox.directory);
}

Result<layer::Checkpoint> find_checkpoint(const SandboxRecord& sandbox, std::string_view selector) {
  TRY_ASSIGN(const auto all, checkpoints_of(sandbox));
  if (all.empty()) {
    return Error(sandbox.name + " has no checkpoint; cofferdam checkpoint " + sandbox.id +
                 " makes one");
  }
  if (selector.empty()) return all.front();
  for (const layer::Checkpoint& one : all) {
    if (one.name == selector || one.id == selector) return one;
  }
  std::string known;
  for (const layer::Checkpoint& one : all) {
    known += (known.empty() ? "" : ", ") + (one.name.empty() ? one.id : one.name);
  }
  return Error(sandbox.name + " has no checkpoint " + std::string(selector) + "; it has " + known);
}

Result<layer::Checkpoint> checkpoint_running(const SandboxRecord& sandbox, std::string_view name,
                                             std::optional<std::chrono::milliseconds> patience) {
  TRY_ASSIGN(const os::UniqueFd fd,
             os::connect_unix(sandbox.directory, kFilesControlName, kPatience)
                 .context("the sandbox's fsproxy cannot be reached"));
  Json asked = Json::object();
  if (!name.empty()) asked["name"] = name;
  if (patience) asked["patience_ms"] = patience->count();
  const std::string body = asked.empty() ? "" : canonical_json(asked);
  TRY(os::write_all(fd.get(), "POST /checkpoint HTTP/1.1\r\nHost: control\r\nContent-Length: " +
                                  std::to_string(body.size()) + "\r\n\r\n" + body));
  TRY_ASSIGN(const std::string answer, os::read_fd(fd.get(), 1U << 20U));
  const std::size_t end = answer.find("\r\n\r\n");
  if (!answer.starts_with("HTTP/1.1 ") || end == std::string::npos) {
    return Error("the sandbox's fsproxy gave no answer");
  }
  TRY_ASSIGN(const Json json, parse_json(answer.substr(end + 4)));
  if (answer.compare(9, 4, "200 ") != 0) return Error(json.value("error", "no reason was given"));
  layer::Checkpoint checkpoint;
  checkpoint.id = json.value("id", "");
  checkpoint.name = json.value("name", "");
  checkpoint.layer = json.value("layer", 0U);
  checkpoint.parent = json.value("parent", 0U);
  checkpoint.time_ns = json.value("time_ns", std::int64_t{0});
  return checkpoint;
}

Result<layer::Checkpoint> checkpoint_ended(const SandboxRecord& sandbox, const std::string& name) {
  TRY_ASSIGN(const std::vector<fs::path> layers, layers_of(sandbox));
  layer::Checkpoint checkpoint;
  checkpoint.name = name;
  TRY_ASSIGN(checkpoint.id, make_sandbox_id());
  checkpoint.time_ns = now_ns();
  std::vector<layer::MetaStore> stores;
  stores.reserve(layers.size());
  for (const fs::path& layer : layers) {
    TRY_ASSIGN(layer::MetaStore meta, open_meta(layer));
    stores.push_back(std::move(meta));
  }
  std::vector<layer::Freeze> freezes;
  std::size_t committed = 0;
  const auto freeze = [&]() -> Status {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      TRY_ASSIGN(layer::Freeze one, layer::Freeze::prepare(layers[i], stores[i]));
      freezes.push_back(std::move(one));
    }
    for (layer::Freeze& one : freezes) TRY(one.exchange());
    // The workspace last: without its row there is no such checkpoint.
    for (auto it = freezes.rbegin(); it != freezes.rend(); ++it) {
      TRY(it->commit(checkpoint));
      ++committed;
    }
    return {};
  };
  if (Status frozen = freeze(); !frozen.ok()) {
    for (std::size_t i = 0; i + committed < freezes.size(); ++i) TRY(freezes[i].take_back());
    return frozen.error();
  }
  return checkpoint;
}

Status roll_back(const SandboxRecord& sandbox, const layer::Checkpoint& target) {
  TRY_ASSIGN(const std::vector<fs::path> layers, layers_of(sandbox));
  for (const fs::path& directory : layers) {
    TRY_ASSIGN(const auto chain, chain_of(directory));
    if (std::none_of(chain.begin(), chain.end(),
                     [&](const layer::Checkpoint& one) { return one.id == target.id; })) {
      return Error("the checkpoint does not cover " + directory.string());
    }
  }
  TRY_ASSIGN(const os::FileLock lock, lock_layers(sandbox));
  TRY(os::write_file_atomic(sandbox.directory / kRollback, target.id + "\n"));
  bool begun = false;
  const Status done = roll_back_all(sandbox, target.id, &begun);
  if (done.ok() || begun) return done;
  // Everything is as it was: there is nothing to finish.
  TRY(forget_rollback(sandbox));
  return done;
}

bool has_unfinished_rollback(const SandboxRecord& sandbox) {
  std::error_code code;
  return fs::exists(sandbox.directory / kRollback, code);
}

Status in_no_rollback(const SandboxRecord& sandbox) {
  if (!has_unfinished_rollback(sandbox)) return {};
  return Error("a rollback of " + sandbox.name +
               " was begun and cannot be finished, and would undo what is done now. Remedy: mend "
               "what the note says and try again");
}

Status finish_rollback(const SandboxRecord& sandbox) {
  TRY_ASSIGN(std::string id, os::read_file(sandbox.directory / kRollback, 4096));
  while (!id.empty() && id.back() == '\n') id.pop_back();
  TRY_ASSIGN(const os::FileLock lock, lock_layers(sandbox));
  bool begun = true;
  return roll_back_all(sandbox, id, &begun);
}

Result<std::size_t> squash(const SandboxRecord& sandbox) {
  TRY_ASSIGN(const os::FileLock lock, lock_layers(sandbox));
  TRY_ASSIGN(const std::vector<fs::path> layers, layers_of(sandbox));
  std::size_t most = 0;
  for (const fs::path& directory : layers) {
    TRY_ASSIGN(layer::MetaStore meta, open_meta(directory));
    TRY_ASSIGN(const std::size_t folded, layer::squash_layers(directory, meta));
    most = std::max(most, folded);
  }
  return most;
}

}  // namespace cofferdam::orchestrator
