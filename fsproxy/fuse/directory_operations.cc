// Listings.
#include <vector>

#include "fsproxy/fuse/operations.h"

namespace cofferdam::fsproxy {
namespace {

using overlay::ListedEntry;
using overlay::OpenDir;

OpenDir& dir_of(const struct fuse_file_info* fi) {
  return *reinterpret_cast<OpenDir*>(fi->fh);
}

void do_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info* fi) {
  MountState& mount = state_of(req);
  const auto dir = mount.view.open_directory(ino);
  if (!dir.ok()) return reply_error(req, dir.error());
  fi->fh = reinterpret_cast<std::uint64_t>(*dir);
  // The kernel keeps listings whose changes it is told of; then it never asks for them here.
  fi->cache_readdir = fi->keep_cache = mount.view.lower_can_add(ino) ? 0 : 1;
  if (fuse_reply_open(req, fi) == -ENOENT) mount.view.close(*dir);
}

// The first entry to give. From the beginning on, a new listing is taken.
Result<std::size_t> begin_reading(MountState& mount, OpenDir& dir, off_t offset) {
  if (offset == 0 || !dir.listed) TRY(mount.view.list_again(dir));
  return dir.entries.after(static_cast<std::uint64_t>(offset));
}

void do_readdir(fuse_req_t req, fuse_ino_t, std::size_t size, off_t offset,
                struct fuse_file_info* fi) {
  OpenDir& dir = dir_of(fi);
  const auto first = begin_reading(state_of(req), dir, offset);
  if (!first.ok()) return reply_error(req, first.error());
  std::vector<char> buffer(size);
  std::size_t used = 0;
  for (std::size_t at = *first; at < dir.entries.size(); ++at) {
    const ListedEntry entry = dir.entries[at];
    struct stat st {};
    st.st_ino = entry.shown_inode;
    st.st_mode = entry.type;
    const std::size_t need =
        fuse_add_direntry(req, buffer.data() + used, size - used, entry.name.c_str(), &st,
                          static_cast<off_t>(entry.offset));
    if (need > size - used) break;
    used += need;
  }
  fuse_reply_buf(req, buffer.data(), used);
}

void do_readdirplus(fuse_req_t req, fuse_ino_t ino, std::size_t size, off_t offset,
                    struct fuse_file_info* fi) {
  MountState& mount = state_of(req);
  OpenDir& dir = dir_of(fi);
  const auto first = begin_reading(mount, dir, offset);
  if (!first.ok()) return reply_error(req, first.error());
  std::vector<char> buffer(size);
  std::size_t used = 0;
  for (std::size_t at = *first; at < dir.entries.size(); ++at) {
    const ListedEntry entry = dir.entries[at];
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
                               static_cast<off_t>(entry.offset));
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

void add_directory_operations(struct fuse_lowlevel_ops& ops) {
  ops.opendir = do_opendir;
  ops.readdir = do_readdir;
  ops.readdirplus = do_readdirplus;
  ops.releasedir = do_releasedir;
  ops.fsyncdir = do_fsyncdir;
}

}  // namespace cofferdam::fsproxy
