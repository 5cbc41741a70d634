// Operations on open files and directories.
#include <fcntl.h>

#include <vector>

#include "fsproxy/fuse/operations.h"

namespace cofferdam::fsproxy {
namespace {

using overlay::OpenDir;
using overlay::OpenFile;

OpenFile& file_of(const struct fuse_file_info* fi) {
  return *reinterpret_cast<OpenFile*>(fi->fh);
}
OpenDir& dir_of(const struct fuse_file_info* fi) {
  return *reinterpret_cast<OpenDir*>(fi->fh);
}

// Offsets come with each write, and everything is buffered: neither flag is ours to keep.
int own_flags(int flags) {
  return flags & (O_ACCMODE | O_TRUNC | O_EXCL);
}

void do_init(void*, struct fuse_conn_info* conn) {
  const auto want = [&](unsigned flag) { conn->want |= conn->capable & flag; };
  const auto refuse = [&](unsigned flag) { conn->want &= ~flag; };
  want(FUSE_CAP_READDIRPLUS);
  refuse(FUSE_CAP_READDIRPLUS_AUTO);
  want(FUSE_CAP_PARALLEL_DIROPS);
  want(FUSE_CAP_ATOMIC_O_TRUNC);
  want(FUSE_CAP_CACHE_SYMLINKS);
  want(FUSE_CAP_ASYNC_READ);
  // Set-id bits are the kernel's to clear; it sends the new mode.
  refuse(FUSE_CAP_HANDLE_KILLPRIV);
  refuse(FUSE_CAP_WRITEBACK_CACHE);
  refuse(FUSE_CAP_SPLICE_READ);
  refuse(FUSE_CAP_SPLICE_WRITE);
  refuse(FUSE_CAP_SPLICE_MOVE);
  refuse(FUSE_CAP_POSIX_LOCKS);
  refuse(FUSE_CAP_FLOCK_LOCKS);
  refuse(FUSE_CAP_EXPORT_SUPPORT);
  refuse(FUSE_CAP_POSIX_ACL);
  // Pages are judged at open (keep_cache); our own writes never make them stale.
  refuse(FUSE_CAP_AUTO_INVAL_DATA);
  conn->max_write = 1U << 20U;
  conn->time_gran = 1;
}

void do_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info* fi) {
  MountState& mount = state_of(req);
  if ((fi->flags & O_ACCMODE) != O_RDONLY || (fi->flags & O_TRUNC) != 0) {
    if (Status s = check_node(mount, "open", ino); !s.ok()) return reply_error(req, s.error());
  }
  const auto opened = mount.view.open_file(ino, own_flags(fi->flags));
  if (!opened.ok()) return reply_error(req, opened.error());
  fi->fh = reinterpret_cast<std::uint64_t>(opened->file);
  fi->keep_cache = opened->keep_cache ? 1 : 0;
  if (fuse_reply_open(req, fi) == -ENOENT) mount.view.close(opened->file);
}

void do_create(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode,
               struct fuse_file_info* fi) {
  MountState& mount = state_of(req);
  const auto path = mount.view.path_of(parent, name);
  if (!path) return reply_error(req, Error::from_errno("create", ENOENT));
  if (Status s = mount.guard.check_create(mount.view.rules(), "create", *path, false); !s.ok()) {
    return reply_error(req, s.error());
  }
  const auto created = mount.view.create(parent, name, mode, own_flags(fi->flags));
  if (!created.ok()) return reply_error(req, created.error());
  fi->fh = reinterpret_cast<std::uint64_t>(created->file);
  fi->keep_cache = 1;
  const struct fuse_entry_param param = entry_param(created->entry, mount.owner);
  if (fuse_reply_create(req, &param, fi) == -ENOENT) {
    mount.view.close(created->file);
    mount.view.forget(param.ino, 1);
  }
}

void do_read(fuse_req_t req, fuse_ino_t, std::size_t size, off_t offset,
             struct fuse_file_info* fi) {
  static thread_local std::vector<char> buffer;
  if (buffer.size() < size) buffer.resize(size);
  const auto got = state_of(req).view.read(file_of(fi), buffer.data(), size, offset);
  if (!got.ok()) return reply_error(req, got.error());
  fuse_reply_buf(req, buffer.data(), *got);
}

void do_write(fuse_req_t req, fuse_ino_t, const char* bytes, std::size_t size, off_t offset,
              struct fuse_file_info* fi) {
  const auto put = state_of(req).view.write(file_of(fi), {bytes, size}, offset);
  if (!put.ok()) return reply_error(req, put.error());
  fuse_reply_write(req, *put);
}

void do_release(fuse_req_t req, fuse_ino_t, struct fuse_file_info* fi) {
  state_of(req).view.close(&file_of(fi));
  fuse_reply_err(req, 0);
}

void do_fsync(fuse_req_t req, fuse_ino_t, int data_only, struct fuse_file_info* fi) {
  reply_status(req, state_of(req).view.sync(file_of(fi), data_only != 0));
}

void do_fallocate(fuse_req_t req, fuse_ino_t, int mode, off_t offset, off_t length,
                  struct fuse_file_info* fi) {
  reply_status(req, state_of(req).view.allocate(file_of(fi), mode, offset, length));
}

void do_copy_file_range(fuse_req_t req, fuse_ino_t, off_t from_offset, struct fuse_file_info* from,
                        fuse_ino_t, off_t to_offset, struct fuse_file_info* to, std::size_t length,
                        int flags) {
  if (flags != 0) return reply_error(req, Error::from_errno("copy_file_range", EINVAL));
  const auto put =
      state_of(req).view.copy_range(file_of(from), from_offset, file_of(to), to_offset, length);
  if (!put.ok()) return reply_error(req, put.error());
  fuse_reply_write(req, *put);
}

void do_lseek(fuse_req_t req, fuse_ino_t, off_t offset, int whence, struct fuse_file_info* fi) {
  const auto at = state_of(req).view.seek(file_of(fi), offset, whence);
  if (!at.ok()) return reply_error(req, at.error());
  fuse_reply_lseek(req, *at);
}

void do_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info* fi) {
  MountState& mount = state_of(req);
  const auto dir = mount.view.open_directory(ino);
  if (!dir.ok()) return reply_error(req, dir.error());
  fi->fh = reinterpret_cast<std::uint64_t>(*dir);
  if (fuse_reply_open(req, fi) == -ENOENT) mount.view.close(*dir);
}

// Offsets are positions in the snapshot; going back to 0 takes a new one.
Status begin_reading(MountState& mount, OpenDir& dir, off_t offset) {
  if (offset == 0 && !dir.fresh) TRY(mount.view.list_again(dir));
  dir.fresh = false;
  return {};
}

void do_readdir(fuse_req_t req, fuse_ino_t, std::size_t size, off_t offset,
                struct fuse_file_info* fi) {
  MountState& mount = state_of(req);
  OpenDir& dir = dir_of(fi);
  if (Status s = begin_reading(mount, dir, offset); !s.ok()) return reply_error(req, s.error());
  std::vector<char> buffer(size);
  std::size_t used = 0;
  for (auto at = static_cast<std::size_t>(offset); at < dir.entries.size(); ++at) {
    const overlay::ListedEntry& entry = dir.entries[at];
    struct stat st {};
    st.st_ino = entry.shown_inode;
    st.st_mode = entry.type;
    const std::size_t need = fuse_add_direntry(req, buffer.data() + used, size - used,
                                               entry.name.c_str(), &st, static_cast<off_t>(at + 1));
    if (need > size - used) break;
    used += need;
  }
  fuse_reply_buf(req, buffer.data(), used);
}

void do_readdirplus(fuse_req_t req, fuse_ino_t ino, std::size_t size, off_t offset,
                    struct fuse_file_info* fi) {
  MountState& mount = state_of(req);
  OpenDir& dir = dir_of(fi);
  if (Status s = begin_reading(mount, dir, offset); !s.ok()) return reply_error(req, s.error());
  std::vector<char> buffer(size);
  std::size_t used = 0;
  for (auto at = static_cast<std::size_t>(offset); at < dir.entries.size(); ++at) {
    const overlay::ListedEntry& entry = dir.entries[at];
    struct fuse_entry_param param {};
    param.attr.st_ino = entry.shown_inode;
    param.attr.st_mode = entry.type;
    if (entry.name != "." && entry.name != "..") {
      const auto found = mount.view.lookup(ino, entry.name);
      // Gone since the snapshot.
      if (!found.ok() && found.error().error_number() == ENOENT) continue;
      if (found.ok()) param = entry_param(*found, mount.owner);
    }
    const std::size_t need =
        fuse_add_direntry_plus(req, buffer.data() + used, size - used, entry.name.c_str(), &param,
                               static_cast<off_t>(at + 1));
    if (need > size - used) {
      if (param.ino != 0) mount.view.forget(param.ino, 1);
      break;
    }
    used += need;
  }
  fuse_reply_buf(req, buffer.data(), used);
}

void do_releasedir(fuse_req_t req, fuse_ino_t, struct fuse_file_info* fi) {
  state_of(req).view.close(&dir_of(fi));
  fuse_reply_err(req, 0);
}

void do_fsyncdir(fuse_req_t req, fuse_ino_t ino, int, struct fuse_file_info*) {
  reply_status(req, state_of(req).view.sync_directory(ino));
}

}  // namespace

void add_file_operations(struct fuse_lowlevel_ops& ops) {
  ops.init = do_init;
  ops.open = do_open;
  ops.create = do_create;
  ops.read = do_read;
  ops.write = do_write;
  ops.release = do_release;
  ops.fsync = do_fsync;
  ops.fallocate = do_fallocate;
  ops.copy_file_range = do_copy_file_range;
  ops.lseek = do_lseek;
  ops.opendir = do_opendir;
  ops.readdir = do_readdir;
  ops.readdirplus = do_readdirplus;
  ops.releasedir = do_releasedir;
  ops.fsyncdir = do_fsyncdir;
}

const struct fuse_lowlevel_ops& mount_operations() {
  // Extended attributes, flush, access and locks are left to the kernel: it asks once and then no
  // more. Locks are then its own, which is right for one mount.
  static const struct fuse_lowlevel_ops ops = [] {
    struct fuse_lowlevel_ops out {};
    add_name_operations(out);
    add_file_operations(out);
    return out;
  }();
  return ops;
}

}  // namespace cofferdam::fsproxy
