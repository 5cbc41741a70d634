#include "orchestrator/changes/applier.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "common/os/tree_paths.h"

namespace cofferdam::orchestrator::changes {
namespace {

using layer::Kind;

bool makes_object(const MergeItem& item) {
  const ObjectState& theirs = item.change.theirs;
  if (theirs.absent()) return false;
  // A directory that stays one only changes its mode.
  return !(theirs.kind == Kind::kDirectory && item.ours.kind == Kind::kDirectory);
}

std::string leaf(const MergeItem& item) {
  return std::string(os::leaf_of(item.change.path));
}

bool is_missing(const Error& error) {
  const int number = error.error_number();
  return number == ENOENT || number == ENOTDIR || number == ELOOP;
}

Status is_empty_directory(int directory, const std::string& name) {
  TRY_ASSIGN(const os::UniqueFd fd, os::open_in_tree(directory, name, O_RDONLY | O_DIRECTORY));
  return os::for_each_name(fd.get(), [](std::string_view) -> Status {
    return Error("something was put into it meanwhile", ENOTEMPTY);
  });
}

}  // namespace

Status Applier::before(std::string_view act, const MergeItem& item) const {
  if (!before_act_) return {};
  return before_act_(act, item.change.path);
}

Result<Owner> Applier::owner_for(const MergeItem& item) const {
  // Its own before; else that of the nearest directory that is there already.
  std::string path =
      item.ours.absent() ? std::string(os::parent_of(item.change.path)) : item.change.path;
  while (true) {
    const auto parent = os::open_parent_in_tree(view_.workspace(), path);
    if (parent.ok()) {
      const auto st = path.empty() ? os::stat_in(view_.workspace(), ".")
                                   : os::stat_in(parent->get(), os::leaf_of(path));
      if (st.ok()) {
        const bool own_group =
            item.ours.absent() && ::geteuid() != 0 && (st->st_mode & S_ISGID) == 0;
        return Owner{st->st_uid, own_group ? ::getegid() : st->st_gid};
      }
      if (!is_missing(st.error())) return st.error();
    } else if (!is_missing(parent.error())) {
      return parent.error();
    }
    if (path.empty()) return Error("the workspace is gone");
    path = os::parent_of(path);
  }
}

Status Applier::stage(std::size_t index) {
  const MergeItem& item = *items_[index];
  TRY(before("stage", item));
  TRY_ASSIGN(const Owner owner, owner_for(item));
  return staging_.make(view_, new_name(index), item.change, owner);
}

Status Applier::still_there(int parent, const MergeItem& item) const {
  const auto again = os::open_parent_in_tree(view_.workspace(), item.change.path);
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

Status Applier::came_out(const std::string& name, const ObjectState& expected) const {
  TRY_ASSIGN(const ObjectState found, object_in(staging_.fd(), name));
  if (!found.same_as(expected)) return Error("it was changed while the merge ran");
  if (found.kind == Kind::kDirectory) TRY(is_empty_directory(staging_.fd(), name));
  return {};
}

Status Applier::remove(std::size_t index) {
  const MergeItem& item = *items_[index];
  TRY_ASSIGN(const os::UniqueFd parent,
             os::open_parent_in_tree(view_.workspace(), item.change.path));
  TRY(before("remove", item));
  TRY(os::rename_no_replace(parent.get(), leaf(item), staging_.fd(), old_name(index)));
  done_.push_back({Act::kRemoved, index});
  return verified(parent.get(), [&]() -> Status {
    TRY(before("verify", item));
    TRY(came_out(old_name(index), item.ours));
    return still_there(parent.get(), item);
  }());
}

Status Applier::exchange(std::size_t index) {
  const MergeItem& item = *items_[index];
  TRY_ASSIGN(const os::UniqueFd parent,
             os::open_parent_in_tree(view_.workspace(), item.change.path));
  TRY(before("exchange", item));
  TRY(os::rename_exchange(staging_.fd(), new_name(index), parent.get(), leaf(item)));
  done_.push_back({Act::kExchanged, index});
  return verified(parent.get(), [&]() -> Status {
    TRY(before("verify", item));
    TRY(came_out(new_name(index), item.ours));
    return still_there(parent.get(), item);
  }());
}

Status Applier::create(std::size_t index) {
  const MergeItem& item = *items_[index];
  TRY_ASSIGN(const os::UniqueFd parent,
             os::open_parent_in_tree(view_.workspace(), item.change.path));
  TRY(before("create", item));
  TRY(os::rename_no_replace(staging_.fd(), new_name(index), parent.get(), leaf(item)));
  done_.push_back({Act::kCreated, index});
  return verified(parent.get(), [&]() -> Status {
    TRY(before("verify", item));
    return still_there(parent.get(), item);
  }());
}

Status Applier::set_directory_mode(std::size_t index, std::uint32_t from, std::uint32_t to) {
  const MergeItem& item = *items_[index];
  TRY_ASSIGN(const os::UniqueFd parent,
             os::open_parent_in_tree(view_.workspace(), item.change.path));
  TRY_ASSIGN(const struct stat st, os::stat_in(parent.get(), leaf(item)));
  if (!S_ISDIR(st.st_mode) || (st.st_mode & 01777U) != (from & 01777U)) {
    return Error("it was changed while the merge ran");
  }
  TRY_ASSIGN(const os::UniqueFd directory,
             os::open_in_tree(parent.get(), leaf(item), O_RDONLY | O_DIRECTORY));
  TRY(before("chmod", item));
  if (::fchmod(directory.get(), (st.st_mode & 06000U) | (to & 01777U)) != 0) {
    return Error::from_errno("chmod");
  }
  done_.push_back({Act::kModeSet, index});
  return {};
}

Status Applier::read_back() const {
  for (const MergeItem* item : items_) {
    TRY(before("read back", *item));
    auto now = view_.ours(item->change.path);
    if (!now.ok()) return now.error().context(item->change.path);
    if (!now->same_as(item->change.theirs)) {
      return Error("it is not what was written: it was changed while the merge ran")
          .context(item->change.path);
    }
  }
  return {};
}

Status Applier::apply(const std::vector<const MergeItem*>& items) {
  items_ = items;
  const auto at = [&](const Status& status, std::size_t index) -> Status {
    if (status.ok()) return {};
    return status.error().context(items_[index]->change.path);
  };
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (makes_object(*items_[i])) TRY(at(stage(i), i));
  }
  TRY(os::sync_file_system(staging_.fd()));

  // Children go before their parents ...
  for (std::size_t i = items_.size(); i-- > 0;) {
    if (items_[i]->change.theirs.absent()) TRY(at(remove(i), i));
  }
  // ... and come after them.
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (!makes_object(*items_[i])) continue;
    TRY(at(items_[i]->ours.absent() ? create(i) : exchange(i), i));
  }
  for (std::size_t i = items_.size(); i-- > 0;) {
    const MergeItem& item = *items_[i];
    if (item.change.theirs.kind != Kind::kDirectory) continue;
    const std::uint32_t from = makes_object(item) ? 0700 : item.ours.mode;
    TRY(at(set_directory_mode(i, from, item.change.theirs.mode), i));
  }
  TRY(os::sync_file_system(staging_.fd()));
  return read_back();
}

Status Applier::verified(int parent, Status status) {
  if (status.ok()) return status;
  const Done last = done_.back();
  done_.pop_back();
  if (!undo_one(last, parent)) whole_ = false;
  return status;
}

bool Applier::undo_one(const Done& done, int parent) {
  const MergeItem& item = *items_[done.index];
  const std::string name = leaf(item);
  switch (done.act) {
    case Act::kRemoved:
      return os::rename_no_replace(staging_.fd(), old_name(done.index), parent, name).ok();
    case Act::kExchanged: {
      if (!os::rename_exchange(staging_.fd(), new_name(done.index), parent, name).ok()) {
        return false;
      }
      if (item.change.theirs.kind == Kind::kDirectory) {
        return is_empty_directory(staging_.fd(), new_name(done.index)).ok();
      }
      const auto out = object_in(staging_.fd(), new_name(done.index));
      return out.ok() && out->same_as(item.change.theirs);
    }
    case Act::kCreated: {
      if (!os::rename_no_replace(parent, name, staging_.fd(), new_name(done.index)).ok()) {
        return false;
      }
      if (item.change.theirs.kind == Kind::kDirectory) {
        if (is_empty_directory(staging_.fd(), new_name(done.index)).ok()) return true;
        // Somebody uses it already: it stays.
        (void)os::rename_no_replace(staging_.fd(), new_name(done.index), parent, name).ok();
        return false;
      }
      const auto out = object_in(staging_.fd(), new_name(done.index));
      return out.ok() && out->same_as(item.change.theirs);
    }
    case Act::kModeSet: {
      const std::uint32_t from = makes_object(item) ? 0700 : item.ours.mode;
      const auto directory = os::open_in_tree(parent, name, O_RDONLY | O_DIRECTORY);
      struct stat st {};
      return directory.ok() && ::fstat(directory->get(), &st) == 0 &&
             ::fchmod(directory->get(), (st.st_mode & 06000U) | (from & 01777U)) == 0;
    }
  }
  return false;
}

bool Applier::undo() {
  for (auto it = done_.rbegin(); it != done_.rend(); ++it) {
    const auto parent = os::open_parent_in_tree(view_.workspace(), items_[it->index]->change.path);
    if (!parent.ok() || !undo_one(*it, parent->get())) whole_ = false;
  }
  done_.clear();
  return whole_;
}

}  // namespace cofferdam::orchestrator::changes
