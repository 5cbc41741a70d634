#include "orchestrator/changes/transaction.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "common/os/object_copy.h"
#include "common/os/tree_paths.h"
#include "orchestrator/changes/layer_view.h"

namespace cofferdam::orchestrator::changes {
namespace {

using layer::Kind;
using Act = Step::Act;

std::string object_name(std::size_t index) {
  return std::to_string(index);
}

std::string leaf(const Step& step) {
  return std::string(os::leaf_of(step.path));
}

bool exists(int directory, const std::string& name) {
  return os::stat_in(directory, name).ok();
}

Status is_empty_directory(int directory, const std::string& name) {
  TRY_ASSIGN(const os::UniqueFd fd, os::open_in_tree(directory, name, O_RDONLY | O_DIRECTORY));
  return os::for_each_name(fd.get(), [](std::string_view) -> Status {
    return Error("something was put into it meanwhile", ENOTEMPTY);
  });
}

const Error& changed_meanwhile() {
  static const Error kError("it was changed while the merge ran");
  return kError;
}

}  // namespace

Status Transaction::before(std::string_view act, const Step& step) const {
  if (!before_act_) return {};
  return before_act_(act, step.path);
}

Status Transaction::is(int directory, const std::string& name, const Step& step,
                       const ObjectState& expected) const {
  if (step.act == Act::kTree) {
    TRY_ASSIGN(const Sha256Digest found, tree_fingerprint(directory, name));
    if (found != expected.sha256) return changed_meanwhile();
    return {};
  }
  TRY_ASSIGN(const ObjectState found, object_in(directory, name));
  if (!found.same_as(expected)) return changed_meanwhile();
  if (found.kind == Kind::kDirectory) return is_empty_directory(directory, name);
  return {};
}

Result<int> Transaction::parent_of(const Step& step) {
  return held_.parent_of(step.path);
}

Status Transaction::still_there(int parent, const Step& step) const {
  const auto again = os::open_parent_in_tree(workspace_, step.path);
  if (!again.ok()) return again.error().context("its directory");
  struct stat held {};
  struct stat now {};
  if (::fstat(parent, &held) != 0 || ::fstat(again->get(), &now) != 0) {
    return Error::from_errno("stat");
  }
  if (held.st_dev != now.st_dev || held.st_ino != now.st_ino) {
    return Error("its directory was moved meanwhile");
  }
  return {};
}

Status Transaction::out_of_workspace(std::size_t index, const ObjectState& expected,
                                     std::string_view act) {
  const Step& step = plan_.steps[index];
  const std::string name = object_name(index);
  TRY_ASSIGN(const int parent, parent_of(step));
  TRY(before(act, step));
  const bool directory = step.act == Act::kRemove && expected.kind == Kind::kDirectory;
  // There already: a copy, whose run was killed.
  const bool copied = directory && exists(objects_, name);
  const Status moved =
      copied ? Status() : os::rename_no_replace(parent, leaf(step), objects_, name);
  const bool immovable = directory && !moved.ok() && moved.error().error_number() == EXDEV;
  if (copied || immovable) return copy_out_directory(parent, index, expected);
  TRY(moved);
  const Status verified = [&]() -> Status {
    TRY(before("verify", step));
    TRY(is(objects_, name, step, expected));
    return still_there(parent, step);
  }();
  if (!verified.ok()) {
    // What cannot go back lies in `objects` still, and is found there.
    (void)os::rename_no_replace(objects_, name, parent, leaf(step)).ok();
  }
  return verified;
}

Status Transaction::copy_out_directory(int parent, std::size_t index, const ObjectState& expected) {
  const Step& step = plan_.steps[index];
  const std::string name = object_name(index);
  TRY(is(parent, leaf(step), step, expected));
  TRY(os::copy_object(parent, leaf(step), objects_, name));
  const Status removed = [&]() -> Status {
    TRY(before("verify", step));
    TRY(still_there(parent, step));
    if (::unlinkat(parent, leaf(step).c_str(), AT_REMOVEDIR) != 0) {
      return Error::from_errno("remove directory");
    }
    return {};
  }();
  if (!removed.ok()) (void)os::remove_object(objects_, name).ok();
  return removed;
}

Status Transaction::into_workspace(std::size_t index, std::string_view act) {
  const Step& step = plan_.steps[index];
  TRY_ASSIGN(const int parent, parent_of(step));
  TRY(before(act, step));
  TRY(os::rename_no_replace(objects_, object_name(index), parent, leaf(step)));
  const Status verified = [&]() -> Status {
    TRY(before("verify", step));
    return still_there(parent, step);
  }();
  if (!verified.ok()) {
    (void)os::rename_no_replace(parent, leaf(step), objects_, object_name(index)).ok();
  }
  return verified;
}

Status Transaction::exchange(std::size_t index, const ObjectState& expected_out,
                             const ObjectState& put_in, std::string_view act) {
  const Step& step = plan_.steps[index];
  const std::string name = object_name(index);
  TRY_ASSIGN(const int parent, parent_of(step));
  TRY(before(act, step));
  TRY(os::rename_exchange(objects_, name, parent, leaf(step)));
  const Status verified = [&]() -> Status {
    TRY(before("verify", step));
    TRY(is(objects_, name, step, expected_out));
    return still_there(parent, step);
  }();
  if (verified.ok()) return {};
  if (!os::rename_exchange(objects_, name, parent, leaf(step)).ok()) return verified;
  // Somebody wrote over what was put in, in that very moment: that is the newest, and stays.
  if (!is(objects_, name, step, put_in).ok()) {
    (void)os::rename_exchange(objects_, name, parent, leaf(step)).ok();
  }
  return verified;
}

Status Transaction::set_mode(std::size_t index, std::uint32_t from, std::uint32_t to) {
  const Step& step = plan_.steps[index];
  TRY_ASSIGN(const int parent, parent_of(step));
  TRY_ASSIGN(const struct stat st, os::stat_in(parent, leaf(step)));
  if (!S_ISDIR(st.st_mode) || (st.st_mode & 01777U) != (from & 01777U)) return changed_meanwhile();
  TRY(before("chmod", step));
  const std::uint32_t mode = (st.st_mode & 06000U) | (to & 01777U);
  // A directory that its owner may not read cannot be opened, only named.
  const auto opened = os::open_in_tree(parent, leaf(step), O_RDONLY | O_DIRECTORY);
  if (opened.ok()) {
    if (::fchmod(opened->get(), mode) != 0) return Error::from_errno("chmod");
    return {};
  }
  TRY_ASSIGN(const os::UniqueFd named, os::open_in_tree(parent, leaf(step), O_PATH | O_DIRECTORY));
  const std::string by_number = "/proc/self/fd/" + std::to_string(named.get());
  if (::chmod(by_number.c_str(), mode) != 0) return Error::from_errno("chmod");
  return {};
}

Result<Position> Transaction::position(std::size_t index) const {
  const Step& step = plan_.steps[index];
  const std::string name = object_name(index);
  switch (step.act) {
    case Act::kRemove: {
      if (!exists(objects_, name)) return Position::kBefore;
      if (step.before.kind != Kind::kDirectory) return Position::kAfter;
      // A copy of a directory whose removal did not come about, or that is there again.
      const auto parent = os::open_parent_in_tree(workspace_, step.path);
      const bool stands = parent.ok() && is(parent->get(), leaf(step), step, step.before).ok();
      return stands ? Position::kBefore : Position::kAfter;
    }
    case Act::kCreate:
    case Act::kTree:
      return exists(objects_, name) ? Position::kBefore : Position::kAfter;
    case Act::kExchange: {
      TRY_ASSIGN(const struct stat st, os::stat_in(objects_, name));
      return st.st_ino == step.staged_inode ? plan_.origin : other(plan_.origin);
    }
    case Act::kMode: {
      const auto parent = os::open_parent_in_tree(workspace_, step.path);
      if (!parent.ok()) return Position::kBefore;
      const auto st = os::stat_in(parent->get(), leaf(step));
      // A directory that is not there yet.
      if (!st.ok()) return Position::kBefore;
      return (st->st_mode & 01777U) == (step.after.mode & 01777U) ? Position::kAfter
                                                                  : Position::kBefore;
    }
  }
  return Position::kBefore;
}

Status Transaction::came_out(std::size_t index, Position at) const {
  const Step& step = plan_.steps[index];
  const bool after = at == Position::kAfter;
  switch (step.act) {
    case Act::kRemove:
      return after ? is(objects_, object_name(index), step, step.before) : Status();
    case Act::kExchange:
      return is(objects_, object_name(index), step, after ? step.before : step.after);
    case Act::kCreate:
    case Act::kTree:
      return after ? Status() : is(objects_, object_name(index), step, step.after);
    case Act::kMode:
      break;
  }
  return {};
}

Status Transaction::move(std::size_t index, Position from, Position to) {
  const Step& step = plan_.steps[index];
  if (from == to) return {};
  // A directory of this name comes or goes.
  if (step.before.kind == Kind::kDirectory || step.after.kind == Kind::kDirectory) held_.forget();
  const bool forward = to == Position::kAfter;
  switch (step.act) {
    case Act::kRemove:
      return forward ? out_of_workspace(index, step.before, "remove")
                     : into_workspace(index, "put back");
    case Act::kExchange:
      if (forward) return exchange(index, step.before, step.after, "exchange");
      break;
    case Act::kCreate:
    case Act::kTree:
      if (forward) return into_workspace(index, "create");
      break;
    case Act::kMode:
      return forward ? set_mode(index, step.before.mode, step.after.mode)
                     : set_mode(index, step.after.mode, step.before.mode);
  }
  // An edit of what the merge brought is not even touched.
  TRY_ASSIGN(const int parent, parent_of(step));
  TRY(is(parent, leaf(step), step, step.after));
  if (step.act == Act::kExchange) return exchange(index, step.after, step.before, "exchange back");
  return out_of_workspace(index, step.after, "take out");
}

Status Transaction::run(Position to) {
  const std::size_t count = plan_.steps.size();
  bool moved = false;
  for (std::size_t n = 0; n < count; ++n) {
    const std::size_t index = to == Position::kAfter ? n : count - 1 - n;
    const Status done = [&]() -> Status {
      TRY_ASSIGN(const Position now, position(index));
      if (now == to) return came_out(index, to);
      moved = true;
      return move(index, now, to);
    }();
    if (!done.ok()) {
      held_.forget();
      return done.error().context(plan_.steps[index].path);
    }
  }
  if (before_act_) TRY(before_act_("sync", ""));
  TRY(os::sync_file_system(workspace_));
  return moved ? read_back(to) : Status();
}

std::vector<StuckStep> Transaction::run_what_can_be(Position to) {
  std::vector<StuckStep> stuck;
  const std::size_t count = plan_.steps.size();
  for (std::size_t n = 0; n < count; ++n) {
    const std::size_t index = to == Position::kAfter ? n : count - 1 - n;
    const auto now = position(index);
    const Status moved = now.ok() ? move(index, *now, to) : Status(now.error());
    if (moved.ok()) continue;
    held_.forget();
    stuck.push_back({index, plan_.steps[index].path, moved.error().message()});
  }
  (void)os::sync_file_system(workspace_).ok();
  return stuck;
}

std::map<std::string, ObjectState> TransactionPlan::states(Position at) const {
  std::map<std::string, ObjectState> result;
  if (at == Position::kAfter) {
    for (const Step& step : steps) result[step.path] = step.after;
  } else {
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      result[step->path] = step->before;
    }
  }
  return result;
}

Status Transaction::read_back(Position at) const {
  std::map<std::string, const Step*> trees;
  for (const Step& step : plan_.steps) {
    if (step.act == Act::kTree) trees[step.path] = &step;
  }
  HeldTree held(workspace_);
  for (const auto& [path, expected] : plan_.states(at)) {
    if (before_act_) TRY(before_act_("read back", path));
    const auto parent = held.parent_of(path);
    const auto found = trees.find(path);
    if (found != trees.end() && at == Position::kAfter) {
      if (!parent.ok()) return parent.error().context(path);
      const Status same = is(*parent, std::string(os::leaf_of(path)), *found->second, expected);
      if (!same.ok()) return same.error().context(path);
      continue;
    }
    ObjectState now;
    if (parent.ok()) {
      auto object = object_in(*parent, os::leaf_of(path));
      if (!object.ok()) return object.error().context(path);
      now = std::move(object).value();
    }
    if (!now.same_as(expected)) {
      return Error("it is not what was written: it was changed while the merge ran").context(path);
    }
  }
  return {};
}

}  // namespace cofferdam::orchestrator::changes
