// Operations on open files, and what the two sides agree on at the start.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <vector>

#include "fsproxy/fuse/operations.h"

namespace cofferdam::fsproxy {
namespace {

void do_init(void* userdata, struct fuse_conn_info* conn) {
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
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
  refuse(FUSE_CAP_HANDLE_KILLPRIV_V2);
  auto& mount = *static_cast<MountState*>(userdata);
  if (mount.passthrough.possible() && (conn->capable & FUSE_CAP_PASSTHROUGH) != 0) {
    conn->want |= FUSE_CAP_PASSTHROUGH;
    // Backing files may lie on a file system that is itself stacked once, as in a container.
    conn->max_backing_stack_depth = 1;
    mount.passthrough.allow();
  }
#else
  (void)userdata;
#endif
}

void do_read(fuse_req_t req, fuse_ino_t ino, std::size_t size, off_t offset,
             struct fuse_file_info* fi) {
  MountState& mount = state_of(req);
  static thread_local std::vector<char> buffer;
  if (buffer.size() < size) buffer.resize(size);
  const auto got = mount.view.read(file_of(fi), buffer.data(), size, offset);
  if (!got.ok()) return reply_error(req, got.error());
  fuse_reply_buf(req, buffer.data(), *got);
  // Once for a file that is read from its beginning to its end.
  if (offset == 0) note_read(mount, ino);
}

void do_write(fuse_req_t req, fuse_ino_t, const char* bytes, std::size_t size, off_t offset,
              struct fuse_file_info* fi) {
  const auto put = state_of(req).view.write(file_of(fi), {bytes, size}, offset);
  if (!put.ok()) return reply_error(req, put.error());
  fuse_reply_write(req, *put);
}

using std::chrono::steady_clock;

void note_sync(MountState& mount, steady_clock::time_point begin) {
  const auto took =
      std::chrono::duration_cast<std::chrono::microseconds>(steady_clock::now() - begin);
  mount.sync_us.store(took.count(), std::memory_order_relaxed);
}

// A disk takes its time, and nobody else is to wait for it; but where it is as quick as handing the
// work over, and there is little to write, that is not worth it.
void do_fsync(fuse_req_t req, fuse_ino_t, int data_only, struct fuse_file_info* fi) {
  constexpr std::int64_t kQuick = 1500;  // microseconds
  constexpr off_t kLittle = 1 << 20;
  MountState& mount = state_of(req);
  overlay::OpenFile& file = file_of(fi);
  const auto begin = steady_clock::now();
  struct stat st {};
  const bool quick = mount.sync_us.load(std::memory_order_relaxed) < kQuick &&
                     ::fstat(file.fd.get(), &st) == 0 && st.st_size <= kLittle;
  const int copy = file.lower || quick ? -1 : ::fcntl(file.fd.get(), F_DUPFD_CLOEXEC, 3);
  if (copy < 0) {
    reply_status(req, mount.view.sync(file, data_only != 0));
    if (!file.lower) note_sync(mount, begin);
    return;
  }
  const auto logs = std::make_shared<const std::vector<os::UniqueFd>>(mount.view.unsynced_logs());
  mount.slow.run([req, copy, logs, data_only, begin, &mount] {
    const os::UniqueFd fd(copy);
    // A file that survives must not do so without its base.
    for (const os::UniqueFd& log : *logs) {
      if (::fdatasync(log.get()) == 0) continue;
      fuse_reply_err(req, errno);
      return;
    }
    const int failed = data_only != 0 ? ::fdatasync(fd.get()) : ::fsync(fd.get());
    fuse_reply_err(req, failed == 0 ? 0 : errno);
    note_sync(mount, begin);
  });
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

}  // namespace

void note_read(MountState& mount, fuse_ino_t ino) {
  const overlay::NodeId dir = mount.view.directory_of(ino);
  if (dir != 0 && mount.listings.read_below(dir)) {
    mount.stale.push_back({dir, "", dir, true, false});
  }
}

void add_file_operations(struct fuse_lowlevel_ops& ops) {
  ops.init = do_init;
  ops.read = do_read;
  ops.write = do_write;
  ops.fsync = do_fsync;
  ops.fallocate = do_fallocate;
  ops.copy_file_range = do_copy_file_range;
  ops.lseek = do_lseek;
}

const struct fuse_lowlevel_ops& mount_operations(bool attributes) {
  // Flush, access, locks and mostly extended attributes are left to the kernel: it asks once and
  // then no more. Locks are then its own, which is right for one mount.
  const auto make = [](bool with_attributes) {
    struct fuse_lowlevel_ops out {};
    add_name_operations(out);
    add_open_operations(out);
    add_file_operations(out);
    add_directory_operations(out);
    if (with_attributes) add_attribute_operations(out);
    return out;
  };
  static const struct fuse_lowlevel_ops plain = make(false);
  static const struct fuse_lowlevel_ops extended = make(true);
  return attributes ? extended : plain;
}

}  // namespace cofferdam::fsproxy
