#include "orchestrator/automatic_checkpoint.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "common/layer/layer_stack.h"
#include "common/log/event_log.h"
#include "common/os/files.h"
#include "orchestrator/checkpoints.h"

namespace cofferdam::orchestrator {
namespace {

namespace fs = std::filesystem;

using Chain = std::vector<layer::Checkpoint>;

Result<Chain> chain_of(const fs::path& directory) {
  TRY_ASSIGN(const layer::MetaStore meta, layer::MetaStore::open_for_reading(directory / "meta"));
  return layer::CheckpointTable(meta).chain();
}

bool same_root(const struct stat& a, const struct stat& b) {
  return a.st_mode == b.st_mode && a.st_uid == b.st_uid && a.st_gid == b.st_gid &&
         a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

// Nothing was made, changed or removed in the layer since its newest checkpoint.
bool is_unchanged(const fs::path& layer, const Chain& chain) {
  std::error_code code;
  fs::directory_iterator any(layer / "upper", code);
  if (code || any != fs::directory_iterator() || chain.empty()) return false;
  const auto frozen = layer::frozen_path(layer, chain.front().layer);
  struct stat now {};
  struct stat then {};
  return frozen.ok() && ::lstat((layer / "upper").c_str(), &now) == 0 &&
         ::lstat(frozen->c_str(), &then) == 0 && same_root(now, then);
}

// The checkpoint that shows what all layers show now; empty: none does.
std::string present_checkpoint(const std::vector<fs::path>& layers) {
  std::string id;
  for (const fs::path& layer : layers) {
    const auto chain = chain_of(layer);
    if (!chain.ok() || !is_unchanged(layer, *chain)) return {};
    if (!id.empty() && chain->front().id != id) return {};
    id = chain->front().id;
  }
  return id;
}

bool is_automatic(const layer::Checkpoint& checkpoint) {
  return checkpoint.name.starts_with(kAutomaticPrefix);
}

std::size_t count_automatic(const Chain& chain) {
  return static_cast<std::size_t>(std::count_if(chain.begin(), chain.end(), is_automatic));
}

void record(const SandboxRecord& sandbox, std::string_view event, const Json& fields) {
  auto file = os::open_file(sandbox.events(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, 0600);
  if (!file.ok()) return;
  log::EventLog events(std::move(file).value(), {sandbox.id, "", sandbox.manifest, "supervisor"});
  (void)events.write(event, fields).ok();
}

KeptState failed(const SandboxRecord& sandbox, const std::string& name, std::string why) {
  record(sandbox, "checkpoint",
         {{"verdict", "error"}, {"checkpoint.id", ""}, {"name", name}, {"message", why}});
  return {"", false, std::move(why)};
}

std::string too_many() {
  return "it has " + std::to_string(kMostAutomatic) + " automatic checkpoints already";
}

// Folds where all are automatic; an error where it cannot be.
Status make_room(const SandboxRecord& sandbox, const Chain& chain) {
  if (count_automatic(chain) < kMostAutomatic) return {};
  if (count_automatic(chain) != chain.size()) {
    return Error(too_many() + ", and your own among them; cofferdam squash folds all of them");
  }
  TRY_ASSIGN(const std::size_t folded, squash(sandbox).context(too_many()));
  record(sandbox, "squash", {{"verdict", "allow"}, {"layers", folded}});
  return {};
}

}  // namespace

KeptState keep_running_state(const SandboxRecord& sandbox, std::string_view act) {
  const std::string name = std::string(kAutomaticPrefix) + std::string(act);
  const auto layers = layers_of(sandbox);
  if (!layers.ok()) return {};
  if (std::string id = present_checkpoint(*layers); !id.empty()) return {std::move(id), false, ""};
  const auto chain = checkpoints_of(sandbox);
  if (!chain.ok()) return failed(sandbox, name, chain.error().message());
  if (count_automatic(*chain) >= kMostAutomatic) {
    return failed(sandbox, name, too_many() + ", which are folded when it has ended");
  }
  const auto made = checkpoint_running(sandbox, name, kBriefPatience);
  if (!made.ok()) return {"", false, made.error().message()};
  return {made->id, true, ""};
}

KeptState keep_ended_state(const SandboxRecord& sandbox, std::string_view act) {
  const std::string name = std::string(kAutomaticPrefix) + std::string(act);
  const auto layers = layers_of(sandbox);
  if (!layers.ok()) return {};
  if (std::string id = present_checkpoint(*layers); !id.empty()) return {std::move(id), false, ""};
  const auto chain = checkpoints_of(sandbox);
  if (!chain.ok()) return failed(sandbox, name, chain.error().message());
  if (Status room = make_room(sandbox, *chain); !room.ok()) {
    return failed(sandbox, name, room.error().message());
  }
  const auto made = checkpoint_ended(sandbox, name);
  if (!made.ok()) return failed(sandbox, name, made.error().message());
  record(sandbox, "checkpoint",
         {{"verdict", "allow"}, {"checkpoint.id", made->id}, {"name", made->name}});
  return {made->id, true, ""};
}

}  // namespace cofferdam::orchestrator
