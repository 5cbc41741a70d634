#include "orchestrator/changes/journal.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

#include "common/os/files.h"
#include "common/os/object_copy.h"
#include "common/os/tree_paths.h"
#include "orchestrator/changes/layer_view.h"
#include "orchestrator/changes/plan_json.h"

namespace cofferdam::orchestrator::changes {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 7> kPhases = {"staging", "forward", "done", "lent",
                                                     "back",    "undone",  "kept"};

fs::path merges_of(const SandboxRecord& sandbox) {
  return sandbox.directory / "merges";
}
fs::path active_of(const SandboxRecord& sandbox) {
  return merges_of(sandbox) / "active";
}

Result<std::string> random_name() {
  std::array<unsigned char, 8> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return Error::from_errno("getrandom");
  }
  std::string name(Journal::kPrefix);
  for (const unsigned char byte : bytes) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", byte);
    name += digits.data();
  }
  return name;
}

// The number of the newest transaction at rest, 0 when there is none.
Result<unsigned> newest(const fs::path& merges) {
  unsigned last = 0;
  const auto fd = os::open_file(merges, O_RDONLY | O_DIRECTORY);
  if (!fd.ok()) {
    if (fd.error().error_number() == ENOENT) return last;
    return fd.error();
  }
  TRY(os::for_each_name(fd->get(), [&](std::string_view name) -> Status {
    unsigned number = 0;
    if (std::sscanf(std::string(name).c_str(), "%u", &number) == 1 &&
        std::to_string(number) == name) {
      last = std::max(last, number);
    }
    return {};
  }));
  return last;
}

// With all below it; by the descriptor, wherever its directory lies now.
Status remove_below(int directory, const std::string& name) {
  return os::remove_tree("/proc/self/fd/" + std::to_string(directory) + "/" + name);
}

bool holds_old_object(const Step& step) {
  return step.act == Step::Act::kRemove || step.act == Step::Act::kExchange;
}

}  // namespace

bool can_rename_between(int from, int to) {
  struct stat a {};
  struct stat b {};
  if (::fstat(from, &a) != 0 || ::fstat(to, &b) != 0 || a.st_dev != b.st_dev) return false;
  // Two mounts of one file system do not rename into each other. With an exchange the kernel looks
  // at the mounts first, and then finds that there is nothing of this name in `from`.
  const std::string name = std::string(Journal::kPrefix) + "none";
  const Status probe = os::rename_exchange(from, name, to, name);
  return !probe.ok() && probe.error().error_number() == ENOENT;
}

Status Journal::before(std::string_view act) const {
  if (!before_act_) return {};
  return before_act_(act, "");
}

// The journal's own name, and the names in it.
Status Journal::sync_names() const {
  TRY(os::sync_directory(directory_));
  TRY(os::sync_directory(directory_.parent_path()));
  return os::sync_directory(directory_.parent_path().parent_path());
}

Status Journal::write_phase(Phase phase, bool durable) {
  struct stat st {};
  if (::fstat(workspace_, &st) != 0) return Error::from_errno("stat of the workspace");
  const Json json = {{"version", 1},
                     {"phase", kPhases[static_cast<std::size_t>(phase)]},
                     {"in_workspace", outside_},
                     {"workspace_inode", static_cast<std::uint64_t>(st.st_ino)}};
  const std::string text = canonical_json(json) + "\n";
  if (phase == Phase::kStaging && !durable) {
    // No file that could come out of a loss of power half written: a missing one says the same.
    phase_ = phase;
    return {};
  }
  TRY(os::write_file_atomic(directory_ / "phase", text));
  if (durable) TRY(os::sync_directory(directory_));
  phase_ = phase;
  return {};
}

Status Journal::set_phase(Phase phase) {
  TRY(before(std::string("phase ") + std::string(kPhases[static_cast<std::size_t>(phase)])));
  return write_phase(phase, phase != Phase::kStaging && phase != Phase::kDone);
}

Status Journal::write_plan(const TransactionPlan& plan) {
  TRY(before("plan"));
  TRY(os::write_file_atomic(directory_ / "plan.json", canonical_json(to_json(plan)) + "\n"));
  return phase_ == Phase::kStaging ? Status() : os::sync_directory(directory_);
}

Status Journal::sync() {
  TRY(before("sync objects"));
  // Else the journal lies in the same file system.
  if (lies_in_workspace()) TRY(sync_names());
  return os::sync_file_system(objects());
}

Result<TransactionPlan> Journal::read_plan() const {
  TRY_ASSIGN(const std::string text,
             os::read_file(directory_ / "plan.json", std::size_t{4} << 30U));
  TRY_ASSIGN(const Json json, parse_json(text).context("a merge's plan"));
  return plan_from_json(json);
}

Status Journal::open_objects() {
  if (outside_.empty()) {
    TRY_ASSIGN(objects_, os::open_file(directory_ / "objects", O_RDONLY | O_DIRECTORY));
    return {};
  }
  auto there = os::open_in_tree(workspace_, outside_, O_RDONLY | O_DIRECTORY);
  if (!there.ok()) return there.error().context(outside_ + " in the workspace");
  objects_ = std::move(there).value();
  return {};
}

// Its name is durable before it exists.
Status Journal::make_outside() {
  TRY_ASSIGN(outside_, random_name());
  TRY(before("phase outside"));
  TRY(write_phase(phase_, true));
  TRY(sync_names());
  if (::mkdirat(workspace_, outside_.c_str(), 0700) != 0) {
    return Error::from_errno("create a directory in the workspace");
  }
  return open_objects();
}

Result<Journal> Journal::begin(const SandboxRecord& sandbox, int workspace, bool outside,
                               BeforeAct before_act) {
  if (has_active(sandbox)) return Error("an earlier merge is not brought to an end yet");
  Journal journal(active_of(sandbox), workspace, std::move(before_act));
  TRY(os::remove_tree(merges_of(sandbox) / "gone"));
  TRY(os::make_directories(journal.directory_ / "objects"));
  TRY(journal.set_phase(Phase::kStaging));
  TRY(journal.open_objects());
  if (outside || !can_rename_between(journal.objects(), workspace)) TRY(journal.make_outside());
  return journal;
}

bool Journal::has_active(const SandboxRecord& sandbox) {
  struct stat st {};
  return ::lstat(active_of(sandbox).c_str(), &st) == 0;
}

Result<std::vector<fs::path>> Journal::kept(const SandboxRecord& sandbox) {
  std::vector<fs::path> found;
  const auto fd = os::open_file(merges_of(sandbox), O_RDONLY | O_DIRECTORY);
  if (!fd.ok()) {
    if (fd.error().error_number() == ENOENT) return found;
    return fd.error();
  }
  TRY(os::for_each_name(fd->get(), [&](std::string_view name) -> Status {
    if (name.starts_with(kKeptPrefix)) found.push_back(merges_of(sandbox) / name / "objects");
    return {};
  }));
  return found;
}

Result<std::optional<Journal>> Journal::open_active(const SandboxRecord& sandbox, int workspace,
                                                    BeforeAct before_act) {
  if (!has_active(sandbox)) return std::optional<Journal>();
  Journal journal(active_of(sandbox), workspace, std::move(before_act));
  const auto text = os::read_file(journal.directory_ / "phase");
  if (!text.ok()) {
    // Killed before there was anything to say.
    if (text.error().error_number() == ENOENT) return std::optional<Journal>(std::move(journal));
    return text.error();
  }
  TRY_ASSIGN(const Json json, parse_json(*text).context("a merge's phase"));
  if (!json.is_object() || json.value("version", 0) != 1) {
    return Error("a merge's phase: not version 1");
  }
  const std::string phase = json.value("phase", "");
  const auto found = std::find(kPhases.begin(), kPhases.end(), phase);
  if (found == kPhases.end()) return Error("a merge's phase: unknown");
  journal.phase_ = static_cast<Phase>(found - kPhases.begin());
  journal.outside_ = json.value("in_workspace", "");
  if (!journal.outside_.empty() &&
      (!journal.outside_.starts_with(kPrefix) || journal.outside_.find('/') != std::string::npos)) {
    return Error("a merge's phase: not a name that a merge gives");
  }
  struct stat st {};
  if (::fstat(workspace, &st) != 0) return Error::from_errno("stat of the workspace");
  journal.of_this_workspace_ = json.value("workspace_inode", std::uint64_t{st.st_ino}) == st.st_ino;
  const bool moves = journal.phase_ == Phase::kForward || journal.phase_ == Phase::kBack;
  if (const Status opened = journal.open_objects(); !opened.ok() && moves) return opened.error();
  return std::optional<Journal>(std::move(journal));
}

Result<bool> Journal::reopen_last(const SandboxRecord& sandbox) {
  if (has_active(sandbox)) return Error("a merge is under way");
  TRY_ASSIGN(const unsigned last, newest(merges_of(sandbox)));
  if (last == 0) return false;
  const fs::path from = merges_of(sandbox) / std::to_string(last);
  if (::rename(from.c_str(), active_of(sandbox).c_str()) != 0) return Error::from_errno("rename");
  TRY(os::sync_directory(merges_of(sandbox)));
  return true;
}

Status Journal::lend_objects(TransactionPlan& plan, bool outside) {
  const fs::path home = directory_ / "objects";
  TRY_ASSIGN(const os::UniqueFd from, os::open_file(home, O_RDONLY | O_DIRECTORY));
  if (outside || !can_rename_between(from.get(), workspace_)) {
    TRY(set_phase(Phase::kLent));
    TRY(make_outside());
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
      if (!holds_old_object(plan.steps[i])) continue;
      TRY(before("lend"));
      const std::string name = std::to_string(i);
      TRY(os::copy_object(from.get(), name, objects(), name).context(plan.steps[i].path));
    }
    TRY(os::sync_file_system(objects()));
  }
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    Step& step = plan.steps[i];
    if (!holds_old_object(step)) continue;
    const std::string name = std::to_string(i);
    TRY_ASSIGN(const struct stat st, os::stat_in(objects(), name).context(step.path));
    if (step.act == Step::Act::kExchange) step.staged_inode = st.st_ino;
    // Who had the file open while the merge took it away may have written to it since: that comes
    // back too.
    TRY_ASSIGN(step.before, object_in(objects(), name).context(step.path));
  }
  plan.origin = Position::kAfter;
  return {};
}

Status Journal::bring_home(const TransactionPlan& plan) {
  if (outside_.empty()) return {};
  TRY_ASSIGN(const os::UniqueFd home,
             os::open_file(directory_ / "objects", O_RDONLY | O_DIRECTORY));
  // Gone already: the copies are complete.
  if (!objects_) return {};
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const std::string name = std::to_string(i);
    if (!os::stat_in(objects(), name).ok()) continue;
    TRY(before("bring home"));
    TRY(os::copy_object(objects(), name, home.get(), name).context(plan.steps[i].path));
  }
  return os::sync_file_system(home.get());
}

Status Journal::remove_outside() {
  if (outside_.empty()) return {};
  if (objects_) {
    std::vector<std::string> names;
    TRY(os::for_each_name(objects(), [&](std::string_view name) -> Status {
      names.emplace_back(name);
      return {};
    }));
    for (const std::string& name : names) {
      TRY(before("remove object"));
      TRY(remove_below(objects(), name).context(outside_));
    }
  }
  TRY(before("remove objects"));
  if (::unlinkat(workspace_, outside_.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
    return Error::from_errno("remove " + outside_);
  }
  objects_.reset();
  outside_.clear();
  return write_phase(phase_, true);
}

Status Journal::move_to(const fs::path& name) {
  TRY(before("rest"));
  TRY(os::sync_directory(directory_));
  const fs::path target = directory_.parent_path() / name;
  if (::rename(directory_.c_str(), target.c_str()) != 0) return Error::from_errno("rename");
  directory_ = target;
  return os::sync_directory(directory_.parent_path());
}

Status Journal::rest(const TransactionPlan& plan) {
  if (phase_ == Phase::kLent) {
    TRY(remove_outside());
    TRY(set_phase(Phase::kDone));
  }
  TRY(bring_home(plan));
  TRY(remove_outside());
  TRY_ASSIGN(const unsigned last, newest(directory_.parent_path()));
  return move_to(std::to_string(last + 1));
}

Status Journal::drop_all_but(const TransactionPlan& plan, const std::vector<StuckStep>& stuck) {
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const bool needed = std::any_of(stuck.begin(), stuck.end(),
                                    [&](const StuckStep& step) { return step.index == i; });
    if (!needed) TRY(remove_below(objects(), std::to_string(i)));
  }
  return {};
}

Result<fs::path> Journal::keep(const TransactionPlan& plan) {
  TRY(bring_home(plan));
  TRY(remove_outside());
  for (unsigned n = 1;; ++n) {
    const std::string name = std::string(kKeptPrefix) + std::to_string(n);
    struct stat st {};
    if (::lstat((directory_.parent_path() / name).c_str(), &st) == 0) continue;
    TRY(move_to(name));
    return directory_ / "objects";
  }
}

Status Journal::abandon() {
  const fs::path gone = directory_.parent_path() / "gone";
  TRY(os::remove_tree(gone));
  if (::rename(directory_.c_str(), gone.c_str()) != 0) return Error::from_errno("rename");
  directory_ = gone;
  TRY(os::sync_directory(gone.parent_path()));
  // Its last act is a phase again, of a journal that is none any more.
  (void)remove_outside().ok();
  objects_.reset();
  return os::remove_tree(gone);
}

Status Journal::discard() {
  TRY(remove_outside());
  TRY(before("discard"));
  // In one step out of the way of the next, then at leisure.
  const fs::path gone = directory_.parent_path() / "gone";
  TRY(os::remove_tree(gone));
  if (::rename(directory_.c_str(), gone.c_str()) != 0) return Error::from_errno("rename");
  objects_.reset();
  return os::remove_tree(gone);
}

}  // namespace cofferdam::orchestrator::changes
