// Files without a name (open(2), O_TMPFILE), and the name that they may get later.
#include <fcntl.h>
#include <unistd.h>

#include "fsproxy/overlay/overlay.h"

namespace cofferdam::overlay {

Result<Overlay::Created> Overlay::create_unnamed(NodeId parent, mode_t mode, int flags, Maker by) {
  TRY(writable());
  TRY(live_directory(parent));
  TRY_ASSIGN(by, maker_in(parent, by));
  if (files_.size() >= options_.max_open) return Error::from_errno("create", ENFILE);
  os::UniqueFd fd(
      ::openat(work_.get(), ".", (flags & O_ACCMODE) | O_TMPFILE | O_CLOEXEC, mode & 07777U));
  if (!fd) return Error::from_errno("create");
  // A change of owner takes set-id bits away.
  if (gives_away_ && (::fchown(fd.get(), options_.owner_uid, options_.owner_gid) != 0 ||
                      ::fchmod(fd.get(), mode & 07777U) != 0)) {
    return Error::from_errno("chown");
  }
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return Error::from_errno("create: stat");
  TRY(numbers_.born(st.st_ino));
  TRY(owners_.set(st.st_ino, st, by.value_or(owners_.shown(st))));
  Node& node = nodes_.create_unnamed(st.st_mode);
  nodes_.set_upper(node, st.st_ino);
  node.shown_inode = numbers_.shown(st.st_ino);
  node.nameless = true;
  const Owner owner = by.value_or(owners_.shown(st));
  node.last.st_uid = owner.uid;
  node.last.st_gid = owner.gid;
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  auto file = add_file(node, std::move(fd), false, writes);
  if (!file.ok()) {
    nodes_.release(&node);
    return file.error();
  }
  ++node.lookups;
  shape(node, st);
  return Created{entry_of(node, st), *file};
}

// linkat(2) of a descriptor. The file is whole already, so it appears in one step.
Result<Entry> Overlay::name_unnamed(Node& node, Node& parent, const std::string& name) {
  if (node.files.empty()) return Error::from_errno("link", ENOENT);
  TRY_ASSIGN(Slot slot, open_slot("link", parent, name, 0));
  const std::string own = "/proc/self/fd/" + std::to_string(node.files.front()->fd.get());
  const auto build = [&]() -> Status {
    const std::string staged = slot.whiteout ? staged_name() : name;
    const int dir_fd = slot.whiteout ? work_.get() : slot.dir->get();
    if (::linkat(AT_FDCWD, own.c_str(), dir_fd, staged.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      return Error::from_errno("link");
    }
    if (slot.whiteout && ::renameat(dir_fd, staged.c_str(), slot.dir->get(), name.c_str()) != 0) {
      const Error error = Error::from_errno("link: rename");
      (void)::unlinkat(dir_fd, staged.c_str(), 0);
      return error;
    }
    return {};
  };
  if (Status built = build(); !built.ok()) {
    ledger_.add(-static_cast<std::int64_t>(slot.reserved), -1);
    return built.error();
  }
  if (slot.row) {
    TRY(meta_->remove_whiteout(slot.path));
    whiteout_rows_.erase(slot.path);
  }
  if (slot.whiteout) ledger_.add(0, -1);
  charge_directory(parent);
  node.nameless = false;
  nodes_.add_name(node, parent, name);
  TRY_ASSIGN(const struct stat st, stat_node(node));
  ++node.lookups;
  return entry_of(node, st);
}

}  // namespace cofferdam::overlay
