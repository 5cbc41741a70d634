// Opening, creating and releasing files, and which way their bytes go.
#include <fcntl.h>

#include <algorithm>
#include <memory>

#include "fsproxy/fuse/operations.h"

namespace cofferdam::fsproxy {
namespace {

using overlay::OpenFile;

// Offsets come with each write, and everything is buffered: neither flag is ours to keep.
int own_flags(int flags) {
  return flags & (O_ACCMODE | O_TRUNC | O_EXCL);
}

bool enough_quota(const MountState& mount) {
  if (!mount.writers_allowed) return false;
  const overlay::Overlay::Quota quota = mount.view.quota();
  return quota.left >= std::max(Passthrough::kLeastQuota, quota.limit / 2);
}

// Chooses the way and fills the reply. The handle is the kernel's until RELEASE.
Handle* hand_out(MountState& mount, OpenFile& file, bool fresh, bool keep_cache,
                 struct fuse_file_info* fi) {
  auto handle = std::make_unique<Handle>();
  handle->file = &file;
  const Passthrough::Way way = mount.passthrough.acquire(file, fresh, enough_quota(mount));
  handle->passthrough = way.passthrough;
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
  fi->backing_id = way.backing_id;
#endif
  fi->keep_cache = keep_cache && !way.passthrough && !way.drop_pages ? 1 : 0;
  if (way.passthrough && file.writable) {
    mount.writers.insert(handle.get());
    mount.meter.add(file.fd.get());
  }
  fi->fh = reinterpret_cast<std::uint64_t>(handle.get());
  return handle.release();
}

void take_back(MountState& mount, Handle* handle) {
  const std::unique_ptr<Handle> owned(handle);
  if (mount.writers.erase(handle) != 0) mount.meter.remove(handle->file->fd.get());
  mount.passthrough.release(*handle->file, handle->passthrough);
  mount.view.close(handle->file);
}

// Live passthrough opens read the lower file, which this open is about to leave behind: its names
// get a new node, and the kernel asks for them again. It does so once, and then finds nothing in
// the way.
bool sends_elsewhere(fuse_req_t req, fuse_ino_t ino, bool writes) {
  MountState& mount = state_of(req);
  if (!mount.passthrough.needs_new_node(ino, writes)) return false;
  const Status moved = mount.view.supersede(ino);
  reply_error(req, moved.ok() ? Error::from_errno("open", ESTALE) : moved.error());
  return true;
}

void answer_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info fi) {
  MountState& mount = state_of(req);
  const bool cuts = (fi.flags & O_TRUNC) != 0;
  const bool writes = (fi.flags & O_ACCMODE) != O_RDONLY || cuts;
  if (sends_elsewhere(req, ino, writes)) return;
  if (mount.view.sends_on(ino)) return reply_error(req, Error::from_errno("open", ESTALE));
  if (writes && mount.passthrough.is_live(ino) && !mount.passthrough.has_writers(ino) &&
      !enough_quota(mount)) {
    // Little is left, so this one is not to write past us; who reads goes on reading the same file.
    const Status moved = mount.view.supersede(ino);
    return reply_error(req, moved.ok() ? Error::from_errno("open", ESTALE) : moved.error());
  }
  const auto opened = mount.view.open_file(ino, own_flags(fi.flags));
  if (!opened.ok()) return reply_error(req, opened.error());
  // Set-id bits go when somebody else cuts the file. Elsewhere the kernel sees to that, but not in
  // an open that cuts.
  if (cuts && caller_of(req).uid != 0) mount.view.clear_set_ids(*opened->file);
  Handle* handle = hand_out(mount, *opened->file, cuts, opened->keep_cache, &fi);
  if (fuse_reply_open(req, &fi) == -ENOENT) take_back(mount, handle);
}

void do_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info* fi) {
  MountState& mount = state_of(req);
  const bool cuts = (fi->flags & O_TRUNC) != 0;
  const bool writes = (fi->flags & O_ACCMODE) != O_RDONLY || cuts;
  if (writes) {
    if (Status s = check_node(mount, "open", ino); !s.ok()) return reply_error(req, s.error());
  }
  const auto again = [ino, copy = *fi](fuse_req_t later) { answer_open(later, ino, copy); };
  if (writes && !cuts && !mount.passthrough.needs_new_node(ino, true) &&
      mount.copies.defer(req, ino, again))
    return;
  again(req);
}

void do_create(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode,
               struct fuse_file_info* fi) {
  MountState& mount = state_of(req);
  const auto path = mount.view.path_of(parent, name);
  if (!path) return reply_error(req, Error::from_errno("create", ENOENT));
  if (Status s = mount.guard.check_create(mount.view.rules(), "create", *path, false); !s.ok()) {
    return reply_error(req, s.error());
  }
  const auto created = mount.view.create(parent, name, mode, own_flags(fi->flags), caller_of(req));
  if (!created.ok()) return reply_error(req, created.error());
  Handle* handle = hand_out(mount, *created->file, true, true, fi);
  const struct fuse_entry_param param = entry_param(created->entry);
  if (fuse_reply_create(req, &param, fi) == -ENOENT) {
    take_back(mount, handle);
    mount.view.forget(param.ino, 1);
  }
}

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
void do_tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode, struct fuse_file_info* fi) {
  MountState& mount = state_of(req);
  const auto created =
      mount.view.create_unnamed(parent, mode, own_flags(fi->flags), caller_of(req));
  if (!created.ok()) return reply_error(req, created.error());
  Handle* handle = hand_out(mount, *created->file, true, true, fi);
  const struct fuse_entry_param param = entry_param(created->entry);
  if (fuse_reply_create(req, &param, fi) == -ENOENT) {
    take_back(mount, handle);
    mount.view.forget(param.ino, 1);
  }
}
#endif

void do_release(fuse_req_t req, fuse_ino_t, struct fuse_file_info* fi) {
  MountState& mount = state_of(req);
  auto* handle = reinterpret_cast<Handle*>(fi->fh);
  const overlay::NodeId node = handle->file->node->id;
  // Of a write through a mapping nobody told the kernel.
  const bool told = !handle->passthrough || !mount.view.changed_since_told(*handle->file);
  if (handle->passthrough) note_read(mount, node);
  take_back(mount, handle);
  if (!told && mount.view.knows(node)) mount.stale.push_back({0, "", node, false, true});
  fuse_reply_err(req, 0);
}

}  // namespace

void add_open_operations(struct fuse_lowlevel_ops& ops) {
  ops.open = do_open;
  ops.create = do_create;
  ops.release = do_release;
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
  ops.tmpfile = do_tmpfile;
#endif
}

}  // namespace cofferdam::fsproxy
