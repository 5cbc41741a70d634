// Operations on names and attributes.
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>

#include <algorithm>

#include "fsproxy/fuse/operations.h"

namespace cofferdam::fsproxy {
namespace {

using overlay::Changes;
using overlay::Entry;

void reply_entry(fuse_req_t req, const Result<Entry>& entry) {
  if (!entry.ok()) return reply_error(req, entry.error());
  MountState& mount = state_of(req);
  const struct fuse_entry_param param = entry_param(*entry);
  // A reply that nobody waits for any more leaves no reference behind.
  if (fuse_reply_entry(req, &param) == -ENOENT) mount.view.forget(param.ino, 1);
}

Status check_new_name(MountState& mount, std::string_view act, fuse_ino_t parent, const char* name,
                      bool is_dir) {
  const auto path = mount.view.path_of(parent, name);
  if (!path) return Error::from_errno(act, ENOENT);
  return mount.guard.check_create(mount.view.rules(), act, *path, is_dir);
}

Status check_old_name(MountState& mount, std::string_view act, fuse_ino_t parent, const char* name,
                      bool is_dir) {
  const auto path = mount.view.path_of(parent, name);
  if (!path) return Error::from_errno(act, ENOENT);
  return mount.guard.check_change(mount.view.rules(), act, *path, is_dir);
}

void do_lookup(fuse_req_t req, fuse_ino_t parent, const char* name) {
  MountState& mount = state_of(req);
  const auto entry = mount.view.lookup(parent, name);
  if (entry.ok() || entry.error().error_number() != ENOENT) return reply_entry(req, entry);
  struct fuse_entry_param none {};
  none.entry_timeout = mount.view.lower_can_add(parent) ? kLowerSeconds : kStableSeconds;
  fuse_reply_entry(req, &none);
}

void forget_one(MountState& mount, fuse_ino_t ino, std::uint64_t count) {
  mount.view.forget(ino, count);
  if (mount.view.knows(ino)) return;
  mount.listings.forget(ino);
  if (mount.passthrough.on()) mount.passthrough.forget(ino);
}

void do_forget(fuse_req_t req, fuse_ino_t ino, std::uint64_t count) {
  forget_one(state_of(req), ino, count);
  fuse_reply_none(req);
}

void do_forget_multi(fuse_req_t req, std::size_t count, struct fuse_forget_data* forgets) {
  for (std::size_t i = 0; i < count; ++i) {
    forget_one(state_of(req), forgets[i].ino, forgets[i].nlookup);
  }
  fuse_reply_none(req);
}

void do_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info*) {
  MountState& mount = state_of(req);
  reply_attributes(req, mount.view.attributes(ino));
}

std::optional<struct timespec> time_to_set(const struct timespec& given, bool set, bool now) {
  if (!set) return std::nullopt;
  struct timespec out = given;
  if (now) out = {0, UTIME_NOW};
  return out;
}

Result<Entry> change_attributes(MountState& mount, fuse_ino_t ino, const struct stat& attr,
                                int to_set, overlay::OpenFile* file) {
  Changes changes;
  if ((to_set & FUSE_SET_ATTR_UID) != 0) changes.uid = attr.st_uid;
  if ((to_set & FUSE_SET_ATTR_GID) != 0) changes.gid = attr.st_gid;
  // chown(2) to nobody new: nothing else is asked for.
  changes.touch = to_set == 0;
  if ((to_set & FUSE_SET_ATTR_MODE) != 0) changes.mode = attr.st_mode & 07777U;
  if ((to_set & FUSE_SET_ATTR_SIZE) != 0) changes.size = attr.st_size;
  changes.atime = time_to_set(attr.st_atim, (to_set & FUSE_SET_ATTR_ATIME) != 0,
                              (to_set & FUSE_SET_ATTR_ATIME_NOW) != 0);
  changes.mtime = time_to_set(attr.st_mtim, (to_set & FUSE_SET_ATTR_MTIME) != 0,
                              (to_set & FUSE_SET_ATTR_MTIME_NOW) != 0);
  const bool other = changes.mode || changes.size || changes.atime || changes.mtime;
  if (!other) {
    TRY_ASSIGN(const Entry now, mount.view.attributes(ino));
    const bool same_owner = changes.uid.value_or(now.st.st_uid) == now.st.st_uid &&
                            changes.gid.value_or(now.st.st_gid) == now.st.st_gid;
    // Telling a lower object the owner that it has is no reason for a copy.
    if (!changes.owner() || (same_owner && !mount.view.lies_in_upper(ino))) return now;
  }
  TRY(check_node(mount, changes.size ? "truncate" : "setattr", ino));
  if (changes.size && mount.passthrough.needs_new_node(ino, true)) {
    TRY(mount.view.supersede(ino));
    return Error::from_errno("truncate", ESTALE);
  }
  return mount.view.change(ino, changes, file);
}

bool may_change(MountState& mount, fuse_ino_t ino) {
  const std::vector<std::string> paths = mount.view.paths_of(ino);
  return std::all_of(paths.begin(), paths.end(), [&](const std::string& path) {
    return mount.view.rules().decide(path, false).changeable();
  });
}

void answer_setattr(fuse_req_t req, fuse_ino_t ino, const struct stat& attr, int to_set,
                    std::uint64_t handle) {
  MountState& mount = state_of(req);
  auto* file = handle == 0 ? nullptr : reinterpret_cast<Handle*>(handle)->file;
  reply_attributes(req, change_attributes(mount, ino, attr, to_set, file));
}

void do_setattr(fuse_req_t req, fuse_ino_t ino, struct stat* attr, int to_set,
                struct fuse_file_info* fi) {
  const std::uint64_t handle = fi == nullptr ? 0 : fi->fh;
  const bool cuts_all = (to_set & FUSE_SET_ATTR_SIZE) != 0 && attr->st_size == 0;
  const auto again = [ino, copy = *attr, to_set, handle](fuse_req_t later) {
    answer_setattr(later, ino, copy, to_set, handle);
  };
  // The long part of a copy-up is not done here; nor is it begun for what is going to be refused.
  if (!cuts_all && may_change(state_of(req), ino) && state_of(req).copies.defer(req, ino, again))
    return;
  again(req);
}

void do_readlink(fuse_req_t req, fuse_ino_t ino) {
  const auto target = state_of(req).view.read_symlink(ino);
  if (!target.ok()) return reply_error(req, target.error());
  fuse_reply_readlink(req, target->c_str());
}

void do_mknod(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode, dev_t) {
  MountState& mount = state_of(req);
  if (S_ISCHR(mode) || S_ISBLK(mode)) {
    const auto path = mount.view.path_of(parent, name);
    return reply_error(req, mount.guard.special_file("mknod", path.value_or(name)));
  }
  if (Status s = check_new_name(mount, "mknod", parent, name, false); !s.ok()) {
    return reply_error(req, s.error());
  }
  reply_entry(req, mount.view.make_node(parent, name, mode, caller_of(req)));
}

void do_mkdir(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode) {
  MountState& mount = state_of(req);
  if (Status s = check_new_name(mount, "mkdir", parent, name, true); !s.ok()) {
    return reply_error(req, s.error());
  }
  reply_entry(req, mount.view.make_directory(parent, name, mode, caller_of(req)));
}

void do_symlink(fuse_req_t req, const char* target, fuse_ino_t parent, const char* name) {
  MountState& mount = state_of(req);
  if (Status s = check_new_name(mount, "symlink", parent, name, false); !s.ok()) {
    return reply_error(req, s.error());
  }
  reply_entry(req, mount.view.make_symlink(parent, name, target, caller_of(req)));
}

void do_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char* name) {
  MountState& mount = state_of(req);
  Status checked = check_node(mount, "link", ino);
  if (checked.ok()) checked = check_new_name(mount, "link", parent, name, false);
  if (!checked.ok()) return reply_error(req, checked.error());
  reply_entry(req, mount.view.link(ino, parent, name));
}

void do_unlink(fuse_req_t req, fuse_ino_t parent, const char* name) {
  MountState& mount = state_of(req);
  Status status = check_old_name(mount, "unlink", parent, name, false);
  if (status.ok()) status = mount.view.unlink(parent, name);
  reply_status(req, status);
}

void do_rmdir(fuse_req_t req, fuse_ino_t parent, const char* name) {
  MountState& mount = state_of(req);
  Status status = check_old_name(mount, "rmdir", parent, name, true);
  if (status.ok()) status = mount.view.remove_directory(parent, name);
  reply_status(req, status);
}

Status rename_checked(MountState& mount, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
                      const char* new_name, unsigned flags) {
  // What moves decides whether rules for directories apply; both names are judged as both kinds.
  for (const bool is_dir : {false, true}) {
    TRY(check_old_name(mount, "rename", parent, name, is_dir));
    TRY(check_new_name(mount, "rename", new_parent, new_name, is_dir));
  }
  return mount.view.rename(parent, name, new_parent, new_name, flags);
}

void do_rename(fuse_req_t req, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
               const char* new_name, unsigned flags) {
  reply_status(req, rename_checked(state_of(req), parent, name, new_parent, new_name, flags));
}

void do_statfs(fuse_req_t req, fuse_ino_t) {
  const struct statvfs st = state_of(req).view.statistics();
  fuse_reply_statfs(req, &st);
}

}  // namespace

Status check_node(MountState& mount, std::string_view act, fuse_ino_t ino) {
  const bool is_dir = mount.view.is_directory(ino);
  for (const std::string& path : mount.view.paths_of(ino)) {
    TRY(mount.guard.check_change(mount.view.rules(), act, path, is_dir));
  }
  return {};
}

void add_name_operations(struct fuse_lowlevel_ops& ops) {
  ops.lookup = do_lookup;
  ops.forget = do_forget;
  ops.forget_multi = do_forget_multi;
  ops.getattr = do_getattr;
  ops.setattr = do_setattr;
  ops.readlink = do_readlink;
  ops.mknod = do_mknod;
  ops.mkdir = do_mkdir;
  ops.symlink = do_symlink;
  ops.link = do_link;
  ops.unlink = do_unlink;
  ops.rmdir = do_rmdir;
  ops.rename = do_rename;
  ops.statfs = do_statfs;
}

}  // namespace cofferdam::fsproxy
