// New objects. Each is made whole under its own name; over a whiteout, in work/ and renamed onto
// it.
#include <fcntl.h>
#include <unistd.h>

#include "common/os/beneath.h"
#include "fsproxy/overlay/overlay.h"
#include "fsproxy/overlay/widened.h"

namespace cofferdam::overlay {
namespace {

// More than any path of PATH_MAX bytes has.
constexpr std::size_t kMaxDepth = 2048;
// Records for each entry that the quota allows.
constexpr std::uint64_t kRowsPerEntry = 8;

// mkdir(2) takes neither set-id bit.
bool needs_chmod(mode_t mode) {
  return (mode & 06000U) != 0;
}

}  // namespace

Result<Overlay::Slot> Overlay::open_slot(std::string_view operation, Node& parent,
                                         const std::string& name, std::uint64_t bytes,
                                         const Gap* searched) {
  TRY(writable());
  if (name.size() > 255) return Error::from_errno("create", ENAMETOOLONG);
  Gap gap;
  if (searched != nullptr) {
    gap = *searched;
  } else {
    TRY_ASSIGN(const std::optional<Found> existing, find_optional(parent, name, &gap));
    if (existing) return Error::from_errno("create", EEXIST);
  }
  if (nodes_.depth(parent) >= kMaxDepth) return Error::from_errno("create", ENAMETOOLONG);
  TRY(copy_up(parent));
  Slot slot;
  slot.path = nodes_.child_path(parent, name);
  TRY_ASSIGN(slot.dir, dirs_->upper(parent));
  slot.whiteout = gap.whiteout;
  slot.row = gap.row;
  // Without a whiteout the search has looked there.
  if (gap.whiteout || gap.row) {
    TRY_ASSIGN(const std::optional<LowerStat> lower, below_at(parent, name));
    slot.lower_hidden = lower.has_value();
  }
  TRY(reserve_rows(operation, slot.path, 1));
  // Whatever lower has here was recorded when it was deleted; else the base is "nothing", as it is
  // of everything below a directory that does not merge.
  if (parent.merged) TRY(records_->record_absent(slot.path));
  TRY(reserve(operation, slot.path, bytes, 1));
  slot.reserved = bytes;
  return slot;
}

// A row stays when its name goes: whoever makes and deletes names for ever must not fill the disk.
Status Overlay::reserve_rows(std::string_view operation, const std::string& path,
                             std::uint64_t rows) {
  const std::uint64_t wanted = records_->rows() + rows;
  if ((wanted + kRowsPerEntry - 1) / kRowsPerEntry <= ledger_.limit().entries) return {};
  observer_.quota_exceeded(operation, path);
  return Error::from_errno("quota", EDQUOT);
}

Status Overlay::give_to_owner(int dir_fd, const std::string& name, mode_t mode, bool link) {
  if (!gives_away_) return {};
  if (::fchownat(dir_fd, name.c_str(), options_.owner_uid, options_.owner_gid,
                 AT_SYMLINK_NOFOLLOW) != 0) {
    return Error::from_errno("chown");
  }
  // A change of owner takes set-id bits away.
  if (!link && (mode & 06000U) != 0 && ::fchmodat(dir_fd, name.c_str(), mode & 07777U, 0) != 0) {
    return Error::from_errno("chmod");
  }
  return {};
}

Result<Entry> Overlay::settle_new(Node& parent, const std::string& name, Slot& slot, mode_t type,
                                  bool owned) {
  struct stat st {};
  if (::fstatat(slot.dir->get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
    return Error::from_errno("create: stat");
  }
  if ((st.st_mode & S_IFMT) != (type & S_IFMT)) return Error::from_errno("create", EIO);
  TRY(numbers_.born(st.st_ino));
  // Another file may have had the number.
  if (!owned) TRY(owners_.forget(st.st_ino));
  if (slot.row) {
    TRY(meta_->remove_whiteout(slot.path));
    whiteout_rows_.erase(slot.path);
  }
  if (slot.whiteout) ledger_.add(0, -1);
  ledger_.settle(slot.reserved, static_cast<std::int64_t>(st.st_blocks) * 512);
  charge_directory(parent);
  Node& node = nodes_.create(parent, name, st.st_mode);
  nodes_.set_upper(node, st.st_ino);
  node.shown_inode = numbers_.shown(st.st_ino);
  node.blocks = st.st_blocks;
  shape(node, st);
  ++node.lookups;
  return entry_of(node, st);
}

// Whom a new object in the directory belongs to.
Result<Overlay::Maker> Overlay::maker_in(NodeId parent, Maker by) {
  if (!by) return by;
  TRY_ASSIGN(const Entry above, attributes(parent));
  if ((above.st.st_mode & S_ISGID) != 0) by->gid = above.st.st_gid;
  return by;
}

Result<Entry> Overlay::make_in_slot(NodeId parent_id, const std::string& name, const Making& making,
                                    const std::function<int(int dir_fd, const char* name)>& make,
                                    const Gap* searched) {
  TRY_ASSIGN(Node * parent, live_directory(parent_id));
  TRY_ASSIGN(const Maker by, maker_in(parent_id, making.by));
  const mode_t mode = making.mode;
  TRY_ASSIGN(Slot slot, open_slot(making.operation, *parent, name, making.bytes, searched));
  const bool directory = S_ISDIR(mode);
  struct stat made_for {};
  made_for.st_uid = options_.owner_uid;
  made_for.st_gid = options_.owner_gid;
  // Whatever takes more than one step is made out of sight.
  const bool staged = slot.whiteout || slot.lower_hidden || slot.row || gives_away_ ||
                      (directory && needs_chmod(mode)) || (by && *by != owners_.shown(made_for));
  const std::string at = staged ? staged_name() : name;
  const int dir_fd = staged ? work_.get() : slot.dir->get();
  const auto build = [&]() -> Status {
    if (make(dir_fd, at.c_str()) != 0) return Error::from_errno("create");
    TRY(give_to_owner(dir_fd, at, mode, S_ISLNK(mode)));
    if (staged && by) {
      struct stat st {};
      if (::fstatat(dir_fd, at.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return Error::from_errno("create: stat");
      }
      TRY(owners_.set(st.st_ino, st, *by));
    }
    // Also where lower has nothing yet: what the user puts there later is not ours to show.
    if (directory && parent->stacked()) {
      const Widened readable(dir_fd, at, 0600, privileged_);
      TRY_ASSIGN(const os::UniqueFd made, os::open_beneath(dir_fd, at, O_RDONLY | O_DIRECTORY));
      TRY(layer::set_opaque(made.get(), marks_));
    }
    if (!staged) return {};
    Widened itself(dir_fd, at, 0200, privileged_);
    // A directory cannot be renamed over a device: they change places.
    const unsigned flags = directory && slot.whiteout ? RENAME_EXCHANGE : 0;
    if (::renameat2(dir_fd, at.c_str(), slot.dir->get(), name.c_str(), flags) != 0) {
      return Error::from_errno("create: rename");
    }
    itself.moved(slot.dir->get(), name);
    if (flags != 0) (void)::unlinkat(dir_fd, at.c_str(), 0);
    return {};
  };
  if (Status built = build(); !built.ok()) {
    if (staged || built.error().error_number() != EEXIST) {
      (void)::unlinkat(dir_fd, at.c_str(), directory ? AT_REMOVEDIR : 0);
    }
    ledger_.add(-static_cast<std::int64_t>(slot.reserved), -1);
    return built.error();
  }
  return settle_new(*parent, name, slot, mode, by.has_value());
}

Result<Entry> Overlay::make_directory(NodeId parent, const std::string& name, mode_t mode,
                                      Maker by) {
  mode &= 07777U;
  // A directory in a set-group-id directory inherits the bit (inode(7)).
  TRY_ASSIGN(const Entry above, attributes(parent));
  if ((above.st.st_mode & S_ISGID) != 0) mode |= S_ISGID;
  return make_in_slot(parent, name, {"mkdir", S_IFDIR | mode, 4096, by},
                      [&](int dir_fd, const char* at) {
                        if (::mkdirat(dir_fd, at, mode & 01777U) != 0) return -1;
                        if (!needs_chmod(mode)) return 0;
                        return ::fchmodat(dir_fd, at, mode, 0);
                      });
}

Result<Entry> Overlay::make_symlink(NodeId parent, const std::string& name,
                                    const std::string& target, Maker by) {
  // ext4 keeps 59 bytes in the inode; elsewhere the truth is settled afterwards.
  const std::uint64_t bytes = target.size() > 59 ? 4096 : 0;
  return make_in_slot(
      parent, name, {"symlink", S_IFLNK | 0777U, bytes, by},
      [&](int dir_fd, const char* at) { return ::symlinkat(target.c_str(), dir_fd, at); });
}

Result<Entry> Overlay::make_node(NodeId parent, const std::string& name, mode_t mode, Maker by) {
  if ((mode & S_IFMT) == 0) mode |= S_IFREG;
  if (!S_ISREG(mode) && !S_ISFIFO(mode) && !S_ISSOCK(mode))
    return Error::from_errno("mknod", EPERM);
  return make_in_slot(parent, name, {"mknod", mode, 0, by}, [&](int dir_fd, const char* at) {
    return ::mknodat(dir_fd, at, mode & (S_IFMT | 07777U), 0);
  });
}

Result<Entry> Overlay::link(NodeId id, NodeId parent_id, const std::string& name) {
  TRY(writable());
  if (Node* unnamed = nodes_.find(id); unnamed != nullptr && unnamed->nameless) {
    TRY_ASSIGN(Node * above, live_directory(parent_id));
    return name_unnamed(*unnamed, *above, name);
  }
  TRY_ASSIGN(Node * node, live(id));
  if (node->is_dir()) return Error::from_errno("link", EPERM);
  TRY_ASSIGN(Node * parent, live_directory(parent_id));
  TRY_ASSIGN(const std::optional<Found> existing, find_optional(*parent, name));
  if (existing) return Error::from_errno("link", EEXIST);
  const Pin pin(nodes_, *node);
  TRY(copy_up(*node));
  TRY_ASSIGN(Slot slot, open_slot("link", *parent, name, 0));
  const NodeName from = node->names.front();
  const auto build = [&]() -> Status {
    TRY_ASSIGN(const DirRef from_dir, dirs_->upper(*from.parent));
    const std::string staged = slot.whiteout ? staged_name() : name;
    const int dir_fd = slot.whiteout ? work_.get() : slot.dir->get();
    if (::linkat(from_dir->get(), from.name.c_str(), dir_fd, staged.c_str(), 0) != 0) {
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
    ledger_.add(0, -1);
    return built.error();
  }
  if (slot.row) {
    TRY(meta_->remove_whiteout(slot.path));
    whiteout_rows_.erase(slot.path);
  }
  if (slot.whiteout) ledger_.add(0, -1);
  charge_directory(*parent);
  nodes_.add_name(*node, *parent, name);
  TRY_ASSIGN(const struct stat st, stat_node(*node));
  ++node->lookups;
  return entry_of(*node, st);
}

Result<Overlay::Created> Overlay::create(NodeId parent_id, const std::string& name, mode_t mode,
                                         int flags, Maker by) {
  TRY_ASSIGN(Node * parent, live_directory(parent_id));
  Gap gap;
  TRY_ASSIGN(const std::optional<Found> existing, find_optional(*parent, name, &gap));
  if (existing) {
    if ((flags & O_EXCL) != 0) return Error::from_errno("create", EEXIST);
    const Pin pin(nodes_, *existing->node);
    TRY_ASSIGN(const Opened opened, open_file(existing->node->id, flags));
    TRY_ASSIGN(const Entry entry, attributes(existing->node->id));
    ++existing->node->lookups;
    return Created{entry, opened.file};
  }
  if (files_.size() >= options_.max_open) return Error::from_errno("create", ENFILE);
  os::UniqueFd fd;
  const int access = flags & O_ACCMODE;
  TRY_ASSIGN(const Entry entry,
             make_in_slot(
                 parent_id, name, {"create", S_IFREG | (mode & 07777U), 0, by},
                 [&](int dir_fd, const char* at) {
                   fd.reset(::openat(dir_fd, at, access | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                                     mode & 07777U));
                   return fd.valid() ? 0 : -1;
                 },
                 &gap));
  return Created{entry, keep_file(*entry.node, std::move(fd), false, access != O_RDONLY)};
}

}  // namespace cofferdam::overlay
