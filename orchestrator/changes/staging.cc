#include "orchestrator/changes/staging.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>

#include "common/os/files.h"
#include "common/os/object_copy.h"
#include "common/os/tree_paths.h"
#include "orchestrator/changes/bulk_tree.h"

namespace cofferdam::orchestrator::changes {
namespace {

using layer::Kind;

bool is_missing(const Error& error) {
  const int number = error.error_number();
  return number == ENOENT || number == ENOTDIR || number == ELOOP;
}

// Only root may choose; a group that the caller is in may be given too, else it stays as it is.
Status give(int fd, uid_t uid, gid_t gid) {
  if (::geteuid() == 0) {
    if (::fchown(fd, uid, gid) != 0) return Error::from_errno("chown");
    return {};
  }
  (void)!::fchown(fd, static_cast<uid_t>(-1), gid);
  return {};
}

const Error& changed_while_read() {
  static const Error kError("the sandbox's version changed while it was read");
  return kError;
}

}  // namespace

Result<Staging::Origin> Staging::origin_of(const MergeItem& item) const {
  Origin origin;
  bool own = !item.ours.absent();
  std::string path = own ? item.change.path : std::string(os::parent_of(item.change.path));
  while (true) {
    const auto parent = os::open_parent_in_tree(view_.workspace(), path);
    if (!parent.ok() && !is_missing(parent.error())) return parent.error();
    const auto st = !parent.ok()   ? Result<struct stat>(parent.error())
                    : path.empty() ? os::stat_in(view_.workspace(), ".")
                                   : os::stat_in(parent->get(), os::leaf_of(path));
    if (st.ok()) {
      origin.uid = st->st_uid;
      origin.gid = st->st_gid;
      if (own) return origin;
      origin.set_group_id = (st->st_mode & S_ISGID) != 0;
      if (::geteuid() != 0 && !origin.set_group_id) origin.gid = ::getegid();
      auto directory = os::open_in_tree(view_.workspace(), path, O_RDONLY | O_DIRECTORY);
      if (directory.ok()) origin.directory = std::move(directory).value();
      return origin;
    }
    if (!is_missing(st.error())) return st.error();
    if (path.empty()) return Error("the workspace is gone");
    path = os::parent_of(path);
    own = false;
  }
}

Result<Staging::Origin> Staging::origin_of_file(const MergeItem& item) const {
  TRY_ASSIGN(const int parent, view_.workspace_parent(item.change.path));
  Origin origin;
  TRY_ASSIGN(origin.before,
             os::open_in_tree(parent, os::leaf_of(item.change.path), O_RDONLY | O_NOCTTY));
  struct stat st {};
  if (::fstat(origin.before.get(), &st) != 0) return Error::from_errno("stat");
  if (!S_ISREG(st.st_mode)) return Error("it was changed while the merge ran");
  origin.uid = st.st_uid;
  origin.gid = st.st_gid;
  return origin;
}

// A file system puts an inode near the directory that it is made in. So it is made, without a name,
// where it will belong; that also spares ext4 the search of one group of inodes for all of them
// (find_inode_bit() looks at every inode that went within the last minute).
Result<os::UniqueFd> Staging::create_file(const MergeItem& item, const std::string& name,
                                          const Origin& origin) const {
  // Both directories are out of everybody's sight: a file may have its mode from the beginning.
  const mode_t mode = item.result.mode & 0777U;
  int near = origin.directory.get();
  if (origin.before) {
    TRY_ASSIGN(near, view_.workspace_parent(item.change.path));
  }
  if (near >= 0) {
    os::UniqueFd fd(::openat(near, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, mode));
    // Nothing that the directory hands down: what is handed down is decided here.
    if (fd && ::flistxattr(fd.get(), nullptr, 0) == 0) {
      const std::string by_number = "/proc/self/fd/" + std::to_string(fd.get());
      if (::linkat(AT_FDCWD, by_number.c_str(), objects_, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
        return fd;
      }
    }
  }
  os::UniqueFd fd(
      ::openat(objects_, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!fd) return Error::from_errno("create");
  return fd;
}

Result<std::uint64_t> Staging::make_file(const MergeItem& item, const ContentSource& content,
                                         const std::string& name, const Origin& origin) const {
  const std::uint32_t mode = item.result.mode;
  TRY_ASSIGN(const os::UniqueFd fd, create_file(item, name, origin));
  Sha256 hash;
  TRY(content([&](std::string_view bytes) -> Status {
    hash.update(bytes);
    return os::write_all(fd.get(), bytes);
  }));
  if (hash.finish() != item.result.sha256) return changed_while_read();
  // Each change of an inode costs as much as its making: only what it does not have already.
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return Error::from_errno("stat");
  bool has_mode = (st.st_mode & 07777U) == mode;
  if (st.st_uid != origin.uid || st.st_gid != origin.gid) {
    TRY(give(fd.get(), origin.uid, origin.gid));
    has_mode = false;
  }
  if (origin.before) {
    TRY(os::copy_attributes(origin.before.get(), fd.get(), item.ours.sha256 == item.result.sha256));
    has_mode = has_mode && ::flistxattr(fd.get(), nullptr, 0) == 0;
  } else if (origin.directory) {
    TRY(os::inherit_access_list(origin.directory.get(), fd.get(), false));
    has_mode = has_mode && ::flistxattr(fd.get(), nullptr, 0) == 0;
  }
  // After the owner, for chown takes set-id bits away; after the lists, whose mask it sets.
  if (!has_mode && ::fchmod(fd.get(), mode) != 0) return Error::from_errno("chmod");
  return static_cast<std::uint64_t>(st.st_ino);
}

Status Staging::make_link(const MergeItem& item, const ContentSource& content,
                          const std::string& name, const Origin& origin) const {
  std::string text;
  TRY(content([&](std::string_view bytes) -> Status {
    text += bytes;
    return {};
  }));
  if (sha256(text) != item.result.sha256) return changed_while_read();
  if (::symlinkat(text.c_str(), objects_, name.c_str()) != 0) return Error::from_errno("symlink");
  if (::geteuid() == 0 &&
      ::fchownat(objects_, name.c_str(), origin.uid, origin.gid, AT_SYMLINK_NOFOLLOW) != 0) {
    return Error::from_errno("chown");
  }
  return {};
}

Status Staging::make_directory(const std::string& name, const Origin& origin) const {
  if (::mkdirat(objects_, name.c_str(), 0700) != 0) return Error::from_errno("mkdir");
  TRY_ASSIGN(const os::UniqueFd fd, os::open_in_tree(objects_, name, O_RDONLY | O_DIRECTORY));
  TRY(give(fd.get(), origin.uid, origin.gid));
  if (origin.directory) TRY(os::inherit_access_list(origin.directory.get(), fd.get(), true));
  if (::fchmod(fd.get(), 0700U | (origin.set_group_id ? S_ISGID : 0U)) != 0) {
    return Error::from_errno("chmod");
  }
  return {};
}

Status Staging::make_tree(const MergeItem& item, const std::string& name, const Copied& copied) {
  TRY_ASSIGN(const Origin origin, origin_of(item));
  TreeOwner owner;
  const mode_t mask = ::umask(022);
  ::umask(mask);
  owner.umask = mask;
  if (::geteuid() == 0) owner.uid = origin.uid;
  if (::geteuid() == 0 || origin.set_group_id) owner.gid = origin.gid;
  const auto root = view_.upper().sole_root_of(item.change.path);
  if (!root) return Error(item.change.path + " is not whole any more");
  return copy_tree(*root, item.change.path, objects_, name, owner, copied);
}

Result<std::uint64_t> Staging::make(const MergeItem& item, const ContentSource& content,
                                    const std::string& name) {
  const bool replaces = item.result.kind == Kind::kFile && item.ours.kind == Kind::kFile;
  TRY_ASSIGN(const Origin origin, replaces ? origin_of_file(item) : origin_of(item));
  switch (item.result.kind) {
    case Kind::kFile:
      return make_file(item, content, name, origin);
    case Kind::kSymlink:
      TRY(make_link(item, content, name, origin));
      break;
    case Kind::kDirectory:
      TRY(make_directory(name, origin));
      break;
    case Kind::kAbsent:
    case Kind::kOther:
      return Error("nothing that can be made");
  }
  TRY_ASSIGN(const struct stat st, os::stat_in(objects_, name));
  return static_cast<std::uint64_t>(st.st_ino);
}

}  // namespace cofferdam::orchestrator::changes
