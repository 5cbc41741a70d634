// A second sandbox that stands on the frozen layers of a first (lent_layers.h).
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>

#include "common/base/json_text.h"
#include "common/layer/layer_stack.h"
#include "common/os/files.h"
#include "common/os/tree_paths.h"
#include "orchestrator/checkpoints.h"
#include "orchestrator/lent_layers.h"

namespace cofferdam::orchestrator {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const fs::path& path) {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::directory_iterator it(path, code), end; !code && it != end; it.increment(code)) {
    names.push_back(it->path().filename().string());
  }
  return names;
}

Status copy_attributes(const fs::path& like, const fs::path& to) {
  struct stat st {};
  if (::lstat(like.c_str(), &st) != 0) return Error::from_errno("fork: stat");
  TRY_ASSIGN(const os::UniqueFd fd, os::open_file(to, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  const struct timespec times[2] = {st.st_atim, st.st_mtim};
  if ((::geteuid() == 0 && ::fchown(fd.get(), st.st_uid, st.st_gid) != 0) ||
      ::fchmod(fd.get(), st.st_mode & 07777U) != 0 || ::futimens(fd.get(), times) != 0) {
    return Error::from_errno("fork: attributes");
  }
  return {};
}

Status fork_layer(const fs::path& sandboxes, const fs::path& from, const fs::path& to,
                  const std::string& id) {
  for (const char* part : {"upper", "work", "index", "layers"}) {
    TRY(os::make_directories(to / part, 0700));
  }
  TRY_ASSIGN(const layer::MetaStore meta, layer::MetaStore::open_for_reading(from / "meta"));
  TRY_ASSIGN(const auto chain, layer::CheckpointTable(meta).chain());
  for (const layer::Checkpoint& one : chain) {
    TRY_ASSIGN(const fs::path upper, layer::frozen_path(from, one.layer));
    const fs::path place = upper.parent_path();
    const fs::path owner_layer = place.parent_path().parent_path();
    // Where it lies now, and where it will when its owner is gone.
    fs::path in_store = place.lexically_relative(sandboxes);
    if (*in_store.begin() == "..") in_store = place.lexically_relative(lent_root(sandboxes));
    TRY(os::write_file_atomic(
        to / "layers" / (std::to_string(one.layer) + ".ref"),
        (sandboxes / in_store).lexically_relative(to).string() + "\n" +
            (lent_root(sandboxes) / in_store).lexically_relative(to).string() + "\n"));
    // Last: whoever removes this one later finds by the reference what to give back.
    TRY(os::make_directories(owner_layer / "users", 0700));
    TRY(os::write_file_atomic(owner_layer / "users" / id, ""));
  }
  TRY_ASSIGN(const layer::StackHead head, layer::CheckpointTable(meta).head());
  for (const std::string& name : names_in(from / "index")) {
    // What the other's present upper has is not this one's.
    if (layer::index_epoch(name) >= head.next) continue;
    if (::link((from / "index" / name).c_str(), (to / "index" / name).c_str()) != 0) {
      return Error::from_errno("fork: index");
    }
  }
  TRY(copy_attributes(from / "upper", to / "upper"));
  struct stat old {};
  struct stat fresh {};
  if (::lstat((from / "upper").c_str(), &old) != 0 ||
      ::lstat((to / "upper").c_str(), &fresh) != 0) {
    return Error::from_errno("fork: stat");
  }
  TRY(meta.copy_to(to / "meta"));
  TRY_ASSIGN(layer::MetaStore copy, layer::MetaStore::open(to / "meta", meta.start_ns()));
  std::uint64_t shown = layer::born_number(old.st_ino);
  TRY(meta.for_each_shown_inode([&](std::uint64_t inode, std::uint64_t number) {
    if (inode == old.st_ino) shown = number;
  }));
  TRY(copy.set_shown_inode(fresh.st_ino, shown));
  TRY(copy.copy_owner(old.st_ino, fresh.st_ino));
  return copy.sync_always();
}

// A grant was given to one sandbox, by somebody, for a reason: its fork has none.
Status drop_grants(const SandboxRecord& sandbox) {
  const auto text = os::read_file(sandbox.egress_policy());
  if (!text.ok()) {
    return text.error().error_number() == ENOENT ? Status() : Status(text.error());
  }
  TRY_ASSIGN(Json policy, parse_json(*text).context("egress.json"));
  Json rules = Json::array();
  for (const Json& rule : policy.value("rules", Json::array())) {
    if (rule.value("source", "") != "grant") rules.push_back(rule);
  }
  policy["rules"] = std::move(rules);
  policy["manifest"] = sandbox.manifest;
  return os::write_file_atomic(sandbox.egress_policy(), canonical_json(policy) + "\n");
}

// Its policy, with the paths and the id of the new sandbox.
Status copy_policies(const SandboxRecord& from, const SandboxRecord& to) {
  std::error_code code;
  for (const std::string& name : names_in(from.directory)) {
    // What was merged from the origin is the origin's: an undo there says nothing here.
    if (!name.ends_with(".json") || name == "state.json" || name == "grants.json" ||
        name == "merged.json") {
      continue;
    }
    TRY_ASSIGN(std::string text, os::read_file(from.directory / name));
    for (std::size_t at = 0; (at = text.find(from.id, at)) != std::string::npos;) {
      text.replace(at, from.id.size(), to.id);
      at += to.id.size();
    }
    TRY(os::write_file_atomic(to.directory / name, text));
  }
  return drop_grants(to);
}

}  // namespace

Result<SandboxRecord> fork(const SandboxStore& store, const SandboxRecord& sandbox,
                           const std::string& name) {
  TRY(sandbox.in_no_phase());
  TRY_ASSIGN(const std::vector<fs::path> layers, layers_of(sandbox));
  TRY_ASSIGN(os::FileLock held, lock_lent(store.root()));
  std::optional<os::FileLock> lock(std::move(held));
  SandboxRecord record = sandbox;
  record.id.clear();
  record.name = name;
  record.ended.clear();
  record.message.clear();
  record.exit_status.reset();
  record.resources = Json::object();
  TRY_ASSIGN(OwnedSandbox made, store.create(record));
  const auto fill = [&]() -> Status {
    for (const fs::path& layer : layers) {
      const fs::path place = layer.lexically_relative(sandbox.directory);
      const fs::path to = place == "." ? made.record.directory : made.record.directory / place;
      TRY(fork_layer(store.root(), layer, to, made.record.id));
    }
    return copy_policies(sandbox, made.record);
  };
  if (Status filled = fill(); !filled.ok()) {
    (void)give_back(store.root(), made.record).ok();
    lock.reset();  // the removal takes it itself
    (void)store.remove(std::move(made)).ok();
    return filled.error();
  }
  for (const SandboxState state :
       {SandboxState::kRunning, SandboxState::kStopping, SandboxState::kTerminated}) {
    TRY(made.set_state(state));
  }
  return made.record;
}

}  // namespace cofferdam::orchestrator
