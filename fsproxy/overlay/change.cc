// Changes of attributes: mode, size, times, owner.
#include <fcntl.h>
#include <unistd.h>

#include "fsproxy/overlay/overlay.h"

namespace cofferdam::overlay {
namespace {

Status set_times(int dir_fd, const char* name, const Changes& changes) {
  struct timespec times[2] = {};
  times[0].tv_nsec = UTIME_OMIT;
  times[1].tv_nsec = UTIME_OMIT;
  if (changes.atime) times[0] = *changes.atime;
  if (changes.mtime) times[1] = *changes.mtime;
  const int result = name == nullptr ? ::futimens(dir_fd, times)
                                     : ::utimensat(dir_fd, name, times, AT_SYMLINK_NOFOLLOW);
  if (result != 0) return Error::from_errno("utimens");
  return {};
}

// An object without a name that is not ours to change keeps its changes in memory.
void change_memory(struct stat& st, const Changes& changes) {
  if (changes.mode) st.st_mode = (st.st_mode & S_IFMT) | (*changes.mode & 07777U);
  if (changes.atime && changes.atime->tv_nsec != UTIME_NOW) st.st_atim = *changes.atime;
  if (changes.mtime && changes.mtime->tv_nsec != UTIME_NOW) st.st_mtim = *changes.mtime;
}

Owner with(Owner owner, const Changes& changes) {
  if (changes.uid) owner.uid = *changes.uid;
  if (changes.gid) owner.gid = *changes.gid;
  return owner;
}

}  // namespace

Status Overlay::change_unnamed(Node& node, const Changes& changes) {
  if (node.frozen != 0 && !node.files.empty()) TRY(copy_without_name(node));
  const OpenFile* open = nullptr;
  for (const OpenFile* candidate : node.files) {
    if (!candidate->lower && (open == nullptr || candidate->writable)) open = candidate;
  }
  const Owner owner = with({node.last.st_uid, node.last.st_gid}, changes);
  node.last.st_uid = owner.uid;
  node.last.st_gid = owner.gid;
  if (open == nullptr) {
    if (changes.size) return Error::from_errno("truncate", ESTALE);
    change_memory(node.last, changes);
    return {};
  }
  const int fd = open->fd.get();
  if (changes.size) TRY(truncate_fd(node, fd, *changes.size));
  struct stat st {};
  if (changes.owner() && ::fstat(fd, &st) != 0) return Error::from_errno("chown");
  // It may have another name that nobody asked for, or get one.
  if (changes.owner() && (st.st_nlink > 0 || node.nameless)) {
    TRY(owners_.set(node.upper_inode, st, owner));
  }
  const mode_t mode = changes.mode.value_or(st.st_mode);
  if ((changes.mode || changes.owner()) && ::fchmod(fd, mode & 07777U) != 0) {
    return Error::from_errno("chmod");
  }
  return changes.atime || changes.mtime ? set_times(fd, nullptr, changes) : Status();
}

// Of an object of upper. The owner is ours to keep, the time of its change is the disk's.
Status Overlay::change_owner(Node& node, const Changes& changes) {
  struct stat st {};
  if (node.id == kRootId) {
    if (::fstat(upper_root_.get(), &st) != 0) return Error::from_errno("chown");
    TRY(owners_.set(st.st_ino, st, with(owner_of(node, st), changes)));
    if (changes.mode || ::fchmod(upper_root_.get(), st.st_mode & 07777U) == 0) return {};
    return Error::from_errno("chown");
  }
  const NodeName at = node.names.front();
  TRY_ASSIGN(const DirRef dir, dirs_->upper(*at.parent));
  if (::fstatat(dir->get(), at.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
    return Error::from_errno("chown");
  }
  TRY(owners_.set(st.st_ino, st, with(owner_of(node, st), changes)));
  if (changes.mode) return {};
  const uid_t same_uid = static_cast<uid_t>(-1);
  const gid_t same_gid = static_cast<gid_t>(-1);
  const int touched =
      S_ISLNK(st.st_mode)
          ? ::fchownat(dir->get(), at.name.c_str(), same_uid, same_gid, AT_SYMLINK_NOFOLLOW)
          : ::fchmodat(dir->get(), at.name.c_str(), st.st_mode & 07777U, 0);
  if (touched != 0) return Error::from_errno("chown");
  return {};
}

Result<Entry> Overlay::change(NodeId id, const Changes& changes, OpenFile* file) {
  TRY(writable());
  Node* node = nodes_.find(id);
  if (node == nullptr) return Error::from_errno("setattr", ESTALE);
  const Pin keep(nodes_, *node);
  const bool times = changes.atime || changes.mtime;

  if (!attached(*node)) {
    TRY(change_unnamed(*node, changes));
    TRY_ASSIGN(const struct stat st, stat_node(*node));
    return entry_of(*node, st);
  }

  const bool cuts_all = changes.size && *changes.size == 0;
  TRY(copy_up(*node, cuts_all ? Data::kNone : Data::kContent));
  if (changes.size) {
    if (!node->is_regular()) return Error::from_errno("truncate", EINVAL);
    if (file != nullptr && file->writable && !file->lower) {
      TRY(truncate_fd(*node, file->fd.get(), *changes.size));
    } else {
      // Through a handle of our own, so that the ledger knows the blocks before.
      TRY_ASSIGN(const Opened opened, open_file(id, O_WRONLY));
      const Status cut = truncate_fd(*node, opened.file->fd.get(), *changes.size);
      close(opened.file);
      TRY(cut);
    }
  }
  if (changes.owner()) TRY(change_owner(*node, changes));
  if (changes.mode || times) {
    if (id == kRootId) {
      if (changes.mode && ::fchmod(upper_root_.get(), *changes.mode & 07777U) != 0) {
        return Error::from_errno("chmod");
      }
      if (times) TRY(set_times(upper_root_.get(), nullptr, changes));
    } else {
      const NodeName at = node->names.front();
      TRY_ASSIGN(const DirRef dir, dirs_->upper(*at.parent));
      if (changes.mode) {
        if (S_ISLNK(node->type)) return Error::from_errno("chmod", EOPNOTSUPP);
        // No link can lie here: the type is known, and upper is changed by this thread only.
        if (::fchmodat(dir->get(), at.name.c_str(), *changes.mode & 07777U, 0) != 0) {
          return Error::from_errno("chmod");
        }
      }
      if (times) TRY(set_times(dir->get(), at.name.c_str(), changes));
    }
  }
  TRY_ASSIGN(const struct stat st, stat_node(*node));
  return entry_of(*node, st);
}

}  // namespace cofferdam::overlay
