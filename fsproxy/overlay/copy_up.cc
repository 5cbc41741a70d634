// Copy-up: a lower object gets its own copy in upper, made in work/ and renamed into place.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "common/os/files.h"
#include "fsproxy/overlay/content_copy.h"
#include "fsproxy/overlay/keep_times.h"
#include "fsproxy/overlay/overlay.h"
#include "fsproxy/overlay/widened.h"

namespace cofferdam::overlay {
namespace {

std::uint64_t allocated(const struct stat& st) {
  return static_cast<std::uint64_t>(st.st_blocks) * 512;
}

}  // namespace

Status Overlay::writable() const {
  if (!options_.writable) return Error::from_errno("change", EROFS);
  return {};
}

Status Overlay::reserve(std::string_view operation, const std::string& path, std::uint64_t bytes,
                        std::uint64_t entries) {
  if (ledger_.reserve(bytes, entries)) return {};
  observer_.quota_exceeded(operation, path);
  return Error::from_errno("quota", ENOSPC);
}

Status Overlay::copy_up(Node& node, Data data) {
  TRY(writable());
  if (node.upper) return {};
  std::vector<Node*> chain;
  for (Node* at = &node; !at->upper; at = at->names.front().parent) {
    if (at->names.empty()) return Error::from_errno("copy up", ENOENT);
    chain.push_back(at);
  }
  for (auto it = chain.rbegin(); it != chain.rend(); ++it) {
    TRY(copy_up_one(**it, *it == &node ? data : Data::kContent));
  }
  return {};
}

// Owner, mode and times of the staged object.
Status Overlay::dress(int dir_fd, const std::string& name, const struct stat& like) {
  if (gives_away_ && ::fchownat(dir_fd, name.c_str(), options_.owner_uid, options_.owner_gid,
                                AT_SYMLINK_NOFOLLOW) != 0) {
    return Error::from_errno("copy up: chown");
  }
  if (!S_ISLNK(like.st_mode) && ::fchmodat(dir_fd, name.c_str(), like.st_mode & 07777U, 0) != 0) {
    return Error::from_errno("copy up: chmod");
  }
  const struct timespec times[2] = {like.st_atim, like.st_mtim};
  if (::utimensat(dir_fd, name.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0) {
    return Error::from_errno("copy up: times");
  }
  return {};
}

Result<os::UniqueFd> Overlay::stage_file(const LowerStat& lower, int lower_dir,
                                         const std::string& name, const std::string& staged,
                                         PendingBase& base, Data data,
                                         std::optional<layer::Version>& copied) {
  constexpr int kAttempts = 3;
  for (int attempt = 0;; ++attempt) {
    (void)::unlinkat(work_.get(), staged.c_str(), 0);
    os::UniqueFd to(::openat(work_.get(), staged.c_str(),
                             O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!to) return Error::from_errno("copy up: create");
    if (data == Data::kNone) return to;
    TRY_ASSIGN(const LowerFile opened,
               open_lower(lower_dir, name, lower.identity, LowerKind::kKnown));
    const os::UniqueFd& from = opened.fd;
    const LowerStat& before = opened.now;
    const bool dense = allocated(before.st) >= static_cast<std::uint64_t>(before.st.st_size);
    if (base.content && dense && version_of(before.st) == base.record.version) {
      TRY(os::write_all(to.get(), *base.content));
    } else {
      TRY(copy_content(from.get(), to.get(), before.st.st_size));
    }
    TRY_ASSIGN(const LowerStat after, stat_lower(from.get(), ""));
    copied = version_of(after.st);
    // A copy of a file that somebody writes all the time is torn: its base is then unknown.
    if (*copied == version_of(before.st) || attempt + 1 == kAttempts) return to;
  }
}

Status Overlay::stage_other(const LowerStat& lower, int lower_dir, const std::string& name,
                            const std::string& staged) {
  const mode_t type = lower.st.st_mode & S_IFMT;
  int result = 0;
  if (type == S_IFDIR) {
    result = ::mkdirat(work_.get(), staged.c_str(), 0700);
  } else if (type == S_IFLNK) {
    TRY_ASSIGN(const std::string target, read_link(lower_dir, name));
    result = ::symlinkat(target.c_str(), work_.get(), staged.c_str());
  } else if (type == S_IFIFO || type == S_IFSOCK) {
    result = ::mknodat(work_.get(), staged.c_str(), type | 0600U, 0);
  } else {
    return Error::from_errno("copy up of a device", EPERM);
  }
  if (result != 0) return Error::from_errno("copy up: create");
  return {};
}

Status Overlay::place(const std::string& staged, int dir_fd, const std::string& name) {
  const KeepTimes times(dir_fd);
  const Widened parent(dir_fd, ".", 0300, privileged_);
  // A directory that changes its parent is written to (rename(2)).
  Widened itself(work_.get(), staged, 0200, privileged_);
  if (::renameat(work_.get(), staged.c_str(), dir_fd, name.c_str()) != 0) {
    const Error error = Error::from_errno("copy up: rename");
    (void)::unlinkat(work_.get(), staged.c_str(), 0);
    (void)::unlinkat(work_.get(), staged.c_str(), AT_REMOVEDIR);
    itself.forget();
    return error;
  }
  itself.moved(dir_fd, name);
  return {};
}

Status Overlay::copy_up_one(Node& node, Data data) {
  const NodeName at = node.names.front();
  const bool frozen = node.frozen != 0;
  TRY_ASSIGN(const DirRef lower_dir, below_dir(*at.parent, node.frozen));
  TRY_ASSIGN(const DirRef upper_dir, dirs_->upper(*at.parent));
  TRY_ASSIGN(LowerStat lower, stat_lower(lower_dir->get(), at.name));
  lower.layer = node.frozen;
  if (!is_object_of(node, lower)) return Error::from_errno("copy up", ESTALE);
  const std::string path = nodes_.path(node);
  std::unique_ptr<CopyJob> ready;
  if (data == Data::kContent) ready = take_prepared(node, lower);
  PendingBase base;
  base.already_recorded = frozen;  // when it was made
  if (!frozen) {
    std::optional<Records::Hashed> hashed;
    if (ready) hashed = Records::Hashed{ready->version, ready->sha256};
    auto taken =
        records_->take(path, lower_dir->get(), at.name, lower, hashed ? &*hashed : nullptr);
    if (!taken.ok()) {
      if (ready) drop_prepared(std::move(ready));
      return taken.error();
    }
    base = std::move(taken).value();
  }

  std::uint64_t bytes = 4096;
  if (node.is_regular()) bytes = data == Data::kNone ? 0 : allocated(lower.st);
  // The block of its attributes.
  if (options_.extended) bytes += 4096;
  if (ready) {
    bytes = ready->reserved;
    if (Status entry = reserve("copy_up", path, 0, 1); !entry.ok()) {
      drop_prepared(std::move(ready));
      return entry;
    }
  } else {
    TRY(reserve("copy_up", path, bytes, 1));
  }
  const std::string staged = ready ? ready->staged : staged_name();
  std::optional<layer::Version> copied;
  os::UniqueFd file;
  struct stat st {};
  const bool several = (node.shared || (frozen && !node.is_dir())) && has_more_names(lower);
  const std::uint64_t names = names_of(lower);
  const auto build = [&]() -> Status {
    if (ready) {
      file = std::move(ready->to);
      copied = ready->version;
    } else if (node.is_regular()) {
      TRY_ASSIGN(file, stage_file(lower, lower_dir->get(), at.name, staged, base, data, copied));
    } else {
      TRY(stage_other(lower, lower_dir->get(), at.name, staged));
    }
    TRY(copy_attributes(node, lower_dir->get(), at.name, staged));
    TRY(dress(work_.get(), staged, lower.st));
    if (::fstatat(work_.get(), staged.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      return Error::from_errno("copy up: stat");
    }
    TRY(numbers_.remember(st.st_ino, node.shown_inode));
    TRY(owners_.set(st.st_ino, st, owner_of(node, lower.st)));
    TRY(records_->write(base, copied));
    if (several) {
      TRY(links_.cover(lower.identity, names, path));
      TRY(links_.add_copy(lower.identity, names, st.st_ino, work_.get(), staged));
      // After that: what a kill between them leaves is put right at the next start.
      if (frozen) TRY(links_.replace_copy(lower.st.st_ino, st.st_ino, work_.get(), staged));
    }
    return place(staged, upper_dir->get(), at.name);
  };
  if (Status built = build(); !built.ok()) {
    (void)::unlinkat(work_.get(), staged.c_str(), S_ISDIR(node.type) ? AT_REMOVEDIR : 0);
    ledger_.add(-static_cast<std::int64_t>(bytes), -1);
    if (several) {
      links_.take_back(lower.identity);
      links_.uncover(lower.identity, path);
    }
    return built;
  }
  ledger_.settle(bytes, static_cast<std::int64_t>(allocated(st)));
  nodes_.set_upper(node, st.st_ino);
  node.shown_inode = numbers_.shown(st.st_ino);
  node.blocks = st.st_blocks;
  charge_directory(*at.parent);
  // Who holds the file open goes on with the copy.
  for (OpenFile* open : node.files) {
    if (!open->lower) continue;
    os::UniqueFd again;
    if (!open->writable) {
      again.reset(::openat(upper_dir->get(), at.name.c_str(),
                           O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    }
    if (!again) again.reset(::fcntl(file.get(), F_DUPFD_CLOEXEC, 3));
    if (!again) return Error::from_errno("copy up: reopen");
    open->fd = std::move(again);
    open->lower = false;
  }
  if (several) give_all_names(node, lower.identity);
  return several ? links_.settle(lower.identity) : Status();
}

// Everything below, too; afterwards nothing of the tree comes from lower. Without recursion.
Status Overlay::copy_up_tree(Node& top) {
  TRY(copy_up(top));
  if (!top.stacked()) {
    // Directories below an opaque one never merge.
    return {};
  }
  std::vector<Pin> directories;
  directories.emplace_back(nodes_, top);
  for (std::size_t i = 0; i < directories.size(); ++i) {
    Node& dir = *directories[i];
    TRY_ASSIGN(const std::vector<ListedEntry> entries, list_raw(dir));
    for (const ListedEntry& entry : entries) {
      TRY_ASSIGN(const std::optional<Found> found, find_optional(dir, entry.name));
      if (!found) continue;
      Pin child(nodes_, *found->node);
      TRY(copy_up(*child));
      if (child->stacked()) directories.push_back(std::move(child));
    }
  }
  // The deepest first: a kill in between leaves directories that still merge, which is the same
  // view.
  for (auto it = directories.rbegin(); it != directories.rend(); ++it) {
    TRY(mark_opaque(**it));
  }
  return {};
}

}  // namespace cofferdam::overlay
