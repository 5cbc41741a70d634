#include "orchestrator/sandbox_store.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "common/base/text_time.h"
#include "common/os/files.h"
#include "common/os/process_identity.h"
#include "orchestrator/lent_layers.h"

namespace cofferdam::orchestrator {

Status SandboxRecord::in_no_phase() const {
  std::error_code code;
  if (!std::filesystem::exists(phase_mark(), code) && !code) return {};
  if (state == SandboxState::kRunning || state == SandboxState::kPending) {
    return Error("sandbox " + id +
                 " is in a phase, whose rights end with it. Remedy: wait until its command runs");
  }
  return Error("sandbox " + id +
               " was ended in the middle of a phase: its rights are not known any more. Remedy: "
               "its changes are there (diff, export, merge); a new run does the rest");
}
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kStates = {"pending", "running", "stopping", "terminated",
                                                     "failed"};
constexpr std::string_view kHex = "0123456789abcdef";
// Hidden directories younger than this may be another process's creation that is not locked yet.
constexpr std::chrono::seconds kLeftoverAge{60};

std::optional<SandboxState> state_from_text(std::string_view text) {
  for (std::size_t i = 0; i < kStates.size(); ++i) {
    if (kStates[i] == text) return static_cast<SandboxState>(i);
  }
  return std::nullopt;
}

bool is_id(std::string_view text) {
  return text.size() == 16 && text.find_first_not_of(kHex) == std::string_view::npos;
}

bool is_legal(SandboxState from, SandboxState to) {
  if (from == to) return true;
  switch (to) {
    case SandboxState::kPending:
      return false;
    case SandboxState::kRunning:
      return from == SandboxState::kPending;
    case SandboxState::kStopping:
      return from == SandboxState::kRunning;
    case SandboxState::kTerminated:
      return from == SandboxState::kStopping;
    case SandboxState::kFailed:
      return from != SandboxState::kTerminated;
  }
  return false;
}

Json to_json(const SandboxRecord& r) {
  Json json = {{"version", 1},
               {"id", r.id},
               {"name", r.name},
               {"state", to_text(r.state)},
               {"workspace", r.workspace},
               {"engine", r.engine},
               {"manifest", r.manifest},
               {"created", r.created},
               {"ended", r.ended},
               {"message", r.message},
               {"argv", r.argv},
               {"uid", r.uid},
               {"supervisor_pid", r.supervisor_pid},
               {"supervisor_start_ticks", r.supervisor_start_ticks},
               {"boot_id", r.boot_id},
               {"resources", r.resources}};
  json["exit_status"] = r.exit_status ? Json(*r.exit_status) : Json();
  return json;
}

Result<SandboxRecord> from_json(const Json& json) {
  try {
    SandboxRecord r;
    r.id = json.at("id").get<std::string>();
    r.name = json.at("name").get<std::string>();
    const auto state = state_from_text(json.at("state").get<std::string>());
    if (!state) return Error("unknown state");
    r.state = *state;
    r.workspace = json.at("workspace").get<std::string>();
    r.engine = json.at("engine").get<std::string>();
    r.manifest = json.at("manifest").get<std::string>();
    r.created = json.at("created").get<std::string>();
    r.ended = json.at("ended").get<std::string>();
    r.message = json.at("message").get<std::string>();
    if (!json.at("exit_status").is_null()) r.exit_status = json.at("exit_status").get<int>();
    r.argv = json.at("argv").get<std::vector<std::string>>();
    r.uid = json.at("uid").get<std::uint32_t>();
    r.supervisor_pid = json.at("supervisor_pid").get<std::int64_t>();
    r.supervisor_start_ticks = json.at("supervisor_start_ticks").get<std::uint64_t>();
    r.boot_id = json.at("boot_id").get<std::string>();
    r.resources = json.at("resources");
    return r;
  } catch (const Json::exception& error) {
    return Error(error.what());
  }
}

Result<SandboxRecord> load(const fs::path& directory) {
  TRY_ASSIGN(const std::string text, os::read_file(directory / "state.json", 16U << 20U));
  auto json = parse_json(text);
  if (!json.ok()) return json.error().context((directory / "state.json").string());
  auto record = from_json(*json);
  if (!record.ok()) return record.error().context((directory / "state.json").string());
  if (record->id != directory.filename().string()) {
    return Error((directory / "state.json").string() + ": names another sandbox: " + record->id);
  }
  record->directory = directory;
  return record;
}

// This process is the one that the sandbox belongs to.
Status name_supervisor(SandboxRecord* record) {
  TRY_ASSIGN(record->supervisor_start_ticks, os::start_ticks(::getpid()));
  TRY_ASSIGN(record->boot_id, os::boot_id());
  record->uid = ::getuid();
  record->supervisor_pid = ::getpid();
  return {};
}

Status make_layer(const fs::path& directory) {
  for (const char* part : {"", "upper", "work"}) {
    TRY(os::make_directories(directory / part, 0700));
  }
  return {};
}

fs::path home_directory() {
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/') return home;
  const passwd* entry = ::getpwuid(::geteuid());
  return entry == nullptr ? fs::path() : fs::path(entry->pw_dir);
}

}  // namespace

std::string_view to_text(SandboxState state) {
  return kStates[static_cast<std::size_t>(state)];
}

Result<std::string> make_sandbox_id() {
  TRY_ASSIGN(const os::UniqueFd fd, os::open_file("/dev/urandom", O_RDONLY));
  std::array<unsigned char, 8> bytes{};
  if (::read(fd.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    return Error::from_errno("/dev/urandom");
  }
  std::string id;
  for (const unsigned char byte : bytes) {
    id += kHex[byte >> 4U];
    id += kHex[byte & 15U];
  }
  return id;
}

bool is_sandbox_name(std::string_view name) {
  constexpr std::string_view kFirst = "abcdefghijklmnopqrstuvwxyz0123456789";
  constexpr std::string_view kRest = "abcdefghijklmnopqrstuvwxyz0123456789_.-";
  if (name == "last") return false;  // what the newest is called
  return !name.empty() && name.size() <= 63 && kFirst.find(name[0]) != std::string_view::npos &&
         name.find_first_not_of(kRest) == std::string_view::npos;
}

Status OwnedSandbox::set_state(SandboxState state) {
  if (!is_legal(record.state, state)) {
    return Error("sandbox " + record.id + ": no transition from " +
                 std::string(to_text(record.state)) + " to " + std::string(to_text(state)));
  }
  record.state = state;
  if (record.ended_for_good() && record.ended.empty()) record.ended = now_rfc3339();
  return save();
}

Status OwnedSandbox::begin_again() {
  if (!record.ended_for_good()) {
    return Error("sandbox " + record.id + " has not ended");
  }
  TRY(name_supervisor(&record));
  record.state = SandboxState::kPending;
  record.ended.clear();
  record.message.clear();
  record.exit_status.reset();
  return save();
}

Status OwnedSandbox::save() const {
  return os::write_file_atomic(record.directory / "state.json",
                               canonical_json(to_json(record)) + "\n");
}

Result<SandboxStore> SandboxStore::open() {
  fs::path base;
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && state[0] == '/') {
    base = state;
  } else {
    const fs::path home = home_directory();
    if (home.empty()) return Error("HOME is not set and this user has no home directory");
    base = home / ".local" / "state";
  }
  const fs::path own = base / "cofferdam";
  TRY(os::make_directories(own / "sandboxes", 0700));
  std::error_code code;
  const fs::path real = fs::canonical(own, code);
  if (code) return Error::from_errno(own.string(), code.value());
  for (const fs::path& directory : {real, real / "sandboxes"}) {
    struct stat st {};
    if (::lstat(directory.c_str(), &st) != 0) return Error::from_errno(directory.string());
    if (!S_ISDIR(st.st_mode)) return Error::from_errno(directory.string(), ENOTDIR);
    if (st.st_uid != ::geteuid()) {
      return Error(directory.string() +
                   " belongs to another user; set XDG_STATE_HOME to a directory of yours");
    }
    if ((st.st_mode & 077U) != 0 && ::chmod(directory.c_str(), 0700) != 0) {
      return Error::from_errno("chmod 0700 " + directory.string());
    }
  }
  return SandboxStore(real / "sandboxes");
}

Result<std::vector<SandboxRecord>> SandboxStore::list() const {
  std::vector<SandboxRecord> records;
  std::error_code code;
  fs::directory_iterator it(root_, code);
  if (code.value() == ENOENT) return records;
  if (code) return Error::from_errno(root_.string(), code.value());
  for (; it != fs::directory_iterator(); it.increment(code)) {
    if (code) return Error::from_errno(root_.string(), code.value());
    const std::string name = it->path().filename().string();
    if (!is_id(name)) continue;
    auto record = load(it->path());
    if (record.ok()) {
      records.push_back(std::move(record).value());
      continue;
    }
    std::error_code gone;
    if (!fs::exists(it->path(), gone)) continue;  // removed meanwhile
    SandboxRecord broken;
    broken.id = name;
    broken.name = name;
    broken.state = SandboxState::kFailed;
    broken.message = record.error().message();
    broken.directory = it->path();
    records.push_back(std::move(broken));
  }
  std::stable_sort(records.begin(), records.end(), [](const auto& a, const auto& b) {
    return std::tie(a.created, a.id) > std::tie(b.created, b.id);
  });
  return records;
}

Result<SandboxRecord> SandboxStore::find(std::string_view selector,
                                         const fs::path& workspace) const {
  TRY_ASSIGN(const std::vector<SandboxRecord> records, list());
  if (selector == "last") {
    for (const SandboxRecord& record : records) {
      if (record.workspace == workspace.string()) return record;
    }
    if (!records.empty()) return records.front();
    return Error("there is no sandbox yet");
  }
  for (const SandboxRecord& record : records) {
    if (record.id == selector) return record;
  }
  for (const SandboxRecord& record : records) {
    if (record.name == selector) return record;
  }
  const SandboxRecord* found = nullptr;
  if (selector.size() >= 4) {
    for (const SandboxRecord& record : records) {
      if (record.id.compare(0, selector.size(), selector) != 0) continue;
      if (found != nullptr) {
        return Error("more than one sandbox begins with " + std::string(selector));
      }
      found = &record;
    }
  }
  if (found == nullptr) {
    return Error("no sandbox " + std::string(selector) + "; `cofferdam ps` lists them");
  }
  return *found;
}

Result<SandboxRecord> SandboxStore::reload(const SandboxRecord& record) const {
  return load(record.directory);
}

Result<OwnedSandbox> SandboxStore::create(SandboxRecord record) const {
  if (record.id.empty()) {
    TRY_ASSIGN(record.id, make_sandbox_id());
  }
  if (!is_id(record.id)) return Error("not a sandbox id: " + record.id);
  if (record.name.empty()) record.name = record.id;
  if (!is_sandbox_name(record.name)) {
    return Error("not a sandbox name: " + record.name + " (allowed: [a-z0-9][a-z0-9_.-]{0,62})");
  }
  const fs::path final_directory = root_ / record.id;
  const fs::path temporary = root_ / ("." + record.id + ".tmp");
  TRY(os::make_directories(root_, 0700));
  if (::mkdir(temporary.c_str(), 0700) != 0) {
    return Error::from_errno("mkdir " + temporary.string());
  }
  const auto give_up = [&](const Error& error) {
    (void)os::remove_tree(temporary).ok();
    return error.context("create sandbox " + record.id);
  };
  auto lock = os::FileLock::try_acquire(temporary / "lock");
  if (!lock.ok()) return give_up(lock.error());
  if (!*lock) return give_up(Error("somebody else holds its lock"));
  for (const fs::path& layer : {temporary, temporary / "home"}) {
    if (Status made = make_layer(layer); !made.ok()) return give_up(made.error());
  }
  if (Status named = name_supervisor(&record); !named.ok()) return give_up(named.error());
  record.state = SandboxState::kPending;
  record.created = now_rfc3339();
  record.directory = temporary;
  OwnedSandbox sandbox(std::move(record), std::move(**lock));
  if (Status saved = sandbox.save(); !saved.ok()) return give_up(saved.error());
  // An id is never taken twice: the directory that rename would replace must not exist.
  std::error_code code;
  if (fs::exists(final_directory, code)) return give_up(Error("its directory exists already"));
  if (::rename(temporary.c_str(), final_directory.c_str()) != 0) {
    return give_up(Error::from_errno("rename"));
  }
  sandbox.record.directory = final_directory;
  return sandbox;
}

Result<std::optional<OwnedSandbox>> SandboxStore::try_own(const SandboxRecord& record) const {
  auto lock = os::FileLock::try_acquire(record.directory / "lock");
  if (!lock.ok()) return lock.error();
  if (!*lock) return std::optional<OwnedSandbox>();
  // The directory may have been removed between open and flock.
  struct stat held {};
  struct stat named {};
  if (::fstat((*lock)->fd(), &held) != 0) return Error::from_errno("fstat");
  if (::stat((record.directory / "lock").c_str(), &named) != 0 || held.st_ino != named.st_ino ||
      held.st_dev != named.st_dev) {
    return Error::from_errno("sandbox " + record.id, ENOENT);
  }
  auto now = load(record.directory);
  SandboxRecord current = now.ok() ? std::move(now).value() : record;
  return std::optional<OwnedSandbox>(OwnedSandbox(std::move(current), std::move(**lock)));
}

Status SandboxStore::remove(OwnedSandbox sandbox) const {
  TRY_ASSIGN(const bool kept_elsewhere, release_layers(root_, sandbox.record));
  if (kept_elsewhere) return {};
  const fs::path gone = root_ / ("." + sandbox.record.id + ".gone");
  if (::rename(sandbox.record.directory.c_str(), gone.c_str()) != 0) {
    return Error::from_errno("remove sandbox " + sandbox.record.id);
  }
  return os::remove_tree(gone);
}

Status SandboxStore::remove_leftovers() const {
  std::error_code code;
  fs::directory_iterator it(root_, code);
  if (code) return Error::from_errno(root_.string(), code.value());
  for (; it != fs::directory_iterator(); it.increment(code)) {
    if (code) return Error::from_errno(root_.string(), code.value());
    const std::string name = it->path().filename().string();
    if (name.empty() || name[0] != '.') continue;
    struct stat st {};
    if (::lstat(it->path().c_str(), &st) != 0 || !S_ISDIR(st.st_mode)) continue;
    const auto age = std::chrono::system_clock::now() -
                     std::chrono::system_clock::from_time_t(st.st_ctim.tv_sec);
    if (age < kLeftoverAge) continue;
    auto lock = os::FileLock::try_acquire(it->path() / "lock");
    if (!lock.ok() || !*lock) continue;
    TRY(os::remove_tree(it->path()));
  }
  return {};
}

}  // namespace cofferdam::orchestrator
