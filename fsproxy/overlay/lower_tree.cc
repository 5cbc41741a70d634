#include "fsproxy/overlay/lower_tree.h"

#include <fcntl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/os/beneath.h"

namespace cofferdam::overlay {
namespace {

struct timespec to_timespec(const struct statx_timestamp& time) {
  struct timespec out {};
  out.tv_sec = time.tv_sec;
  out.tv_nsec = time.tv_nsec;
  return out;
}

}  // namespace

std::int64_t to_ns(const struct timespec& time) {
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

layer::Version version_of(const struct stat& st) {
  layer::Version v;
  switch (st.st_mode & S_IFMT) {
    case S_IFREG:
      v.kind = layer::Kind::kFile;
      break;
    case S_IFDIR:
      v.kind = layer::Kind::kDirectory;
      break;
    case S_IFLNK:
      v.kind = layer::Kind::kSymlink;
      break;
    default:
      v.kind = layer::Kind::kOther;
  }
  v.mode = st.st_mode & 07777U;
  v.uid = st.st_uid;
  v.gid = st.st_gid;
  v.size = static_cast<std::uint64_t>(st.st_size);
  v.mtime_ns = to_ns(st.st_mtim);
  v.ctime_ns = to_ns(st.st_ctim);
  v.inode = st.st_ino;
  v.device = st.st_dev;
  return v;
}

Result<LowerStat> stat_lower(int dir_fd, const std::string& name) {
  struct statx x {};
  const int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | (name.empty() ? AT_EMPTY_PATH : 0);
  if (::statx(dir_fd, name.c_str(), flags, STATX_BASIC_STATS | STATX_BTIME, &x) != 0) {
    return Error::from_errno("stat");
  }
  LowerStat out;
  out.mount_root = !name.empty() && (x.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
  if (out.mount_root && !S_ISDIR(x.stx_mode)) return Error::from_errno("stat", ENOENT);
  out.st.st_dev = makedev(x.stx_dev_major, x.stx_dev_minor);
  out.st.st_ino = x.stx_ino;
  out.st.st_mode = x.stx_mode;
  out.st.st_nlink = x.stx_nlink;
  out.st.st_uid = x.stx_uid;
  out.st.st_gid = x.stx_gid;
  out.st.st_rdev = makedev(x.stx_rdev_major, x.stx_rdev_minor);
  out.st.st_size = static_cast<off_t>(x.stx_size);
  out.st.st_blksize = static_cast<blksize_t>(x.stx_blksize);
  out.st.st_blocks = static_cast<blkcnt_t>(x.stx_blocks);
  out.st.st_atim = to_timespec(x.stx_atime);
  out.st.st_mtim = to_timespec(x.stx_mtime);
  out.st.st_ctim = to_timespec(x.stx_ctime);
  out.identity.device = out.st.st_dev;
  out.identity.inode = x.stx_ino;
  if ((x.stx_mask & STATX_BTIME) != 0) out.identity.birth_ns = to_ns(to_timespec(x.stx_btime));
  return out;
}

Result<LowerFile> open_lower(int dir_fd, const std::string& name, const LowerIdentity& expected,
                             LowerKind kind) {
  if (kind == LowerKind::kLook) {
    TRY_ASSIGN(const LowerStat before, stat_lower(dir_fd, name));
    if (before.identity != expected) return Error::from_errno("open", ESTALE);
    if (!S_ISREG(before.st.st_mode) && !S_ISDIR(before.st.st_mode)) {
      return Error::from_errno("open", EACCES);
    }
  }
  LowerFile out;
  // O_NONBLOCK: should a FIFO have taken the name meanwhile.
  TRY_ASSIGN(out.fd, os::open_beneath(dir_fd, name, O_RDONLY | O_NONBLOCK | O_NOCTTY));
  TRY_ASSIGN(out.now, stat_lower(out.fd.get(), ""));
  if (out.now.identity != expected) return Error::from_errno("open", ESTALE);
  return out;
}

Result<std::string> read_link(int dir_fd, const std::string& name) {
  std::string text(256, '\0');
  for (;;) {
    const ssize_t got = ::readlinkat(dir_fd, name.c_str(), text.data(), text.size());
    if (got < 0) return Error::from_errno("readlink");
    if (static_cast<std::size_t>(got) < text.size()) {
      text.resize(static_cast<std::size_t>(got));
      return text;
    }
    text.resize(text.size() * 2);
  }
}

}  // namespace cofferdam::overlay
