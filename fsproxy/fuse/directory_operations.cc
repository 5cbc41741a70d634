// Listings.
#include <vector>

#include "fsproxy/fuse/operations.h"

namespace cofferdam::fsproxy {
namespace {

using overlay::ListedEntry;
using overlay::OpenDir;

// Opening and closing is not worth a word: the kernel asks once and then no more.
void do_opendir(fuse_req_t req, fuse_ino_t, struct fuse_file_info*) {
  fuse_reply_err(req, ENOSYS);
}

// The kernel keeps every listing. It is told of what changes in those that are watched, and soon to
// forget the others.
void note_listed(MountState& mount, fuse_ino_t ino) {
  if (mount.view.lower_can_add(ino)) mount.expiring.push_back({ino, "", ino, true, false});
}

void do_readdir(fuse_req_t req, fuse_ino_t ino, std::size_t size, off_t offset,
                struct fuse_file_info*) {
  MountState& mount = state_of(req);
  const auto opened = mount.listings.get(ino, offset);
  if (!opened.ok()) return reply_error(req, opened.error());
  const OpenDir& dir = **opened;
  if (offset == 0) note_listed(mount, ino);
  std::vector<char> buffer(size);
  std::size_t used = 0;
  for (std::size_t at = dir.entries.after(static_cast<std::uint64_t>(offset));
       at < dir.entries.size(); ++at) {
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
  if (used == 0) mount.listings.drop(ino);
  fuse_reply_buf(req, buffer.data(), used);
}

void do_readdirplus(fuse_req_t req, fuse_ino_t ino, std::size_t size, off_t offset,
                    struct fuse_file_info*) {
  MountState& mount = state_of(req);
  const auto opened = mount.listings.get(ino, offset);
  if (!opened.ok()) return reply_error(req, opened.error());
  const OpenDir& dir = **opened;
  if (offset == 0) {
    note_listed(mount, ino);
    mount.listings.keeps(ino, dir.entries.size());
  }
  std::vector<char> buffer(size);
  std::size_t used = 0;
  for (std::size_t at = dir.entries.after(static_cast<std::uint64_t>(offset));
       at < dir.entries.size(); ++at) {
    const ListedEntry entry = dir.entries[at];
    struct fuse_entry_param param {};
    param.attr.st_ino = entry.shown_inode;
    param.attr.st_mode = entry.type;
    if (entry.name != "." && entry.name != "..") {
      const auto found = mount.view.lookup(ino, entry.name);
      // Gone since the snapshot.
      if (!found.ok() && found.error().error_number() == ENOENT) continue;
      if (found.ok()) param = entry_param(*found);
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
  if (used == 0) mount.listings.drop(ino);
  fuse_reply_buf(req, buffer.data(), used);
}

void do_fsyncdir(fuse_req_t req, fuse_ino_t ino, int, struct fuse_file_info*) {
  reply_status(req, state_of(req).view.sync_directory(ino));
}

}  // namespace

void add_directory_operations(struct fuse_lowlevel_ops& ops) {
  ops.opendir = do_opendir;
  ops.readdir = do_readdir;
  ops.readdirplus = do_readdirplus;
  ops.fsyncdir = do_fsyncdir;
}

}  // namespace cofferdam::fsproxy
