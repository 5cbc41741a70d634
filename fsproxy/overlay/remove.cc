// Deleting: unlink, rmdir, whiteouts and opaque marks.
#include <fcntl.h>
#include <unistd.h>

#include "common/os/beneath.h"
#include "fsproxy/overlay/overlay.h"
#include "fsproxy/overlay/tree_walk.h"
#include "fsproxy/overlay/widened.h"

namespace cofferdam::overlay {
namespace {

// In work/, where staged names begin with another letter.
constexpr const char* kWhiteout = "whiteout";

}  // namespace

// A whiteout at a name that is free. All are names of one inode, which lies in work/: making and
// replacing them neither takes nor frees inodes.
Status Overlay::make_whiteout(int dir_fd, const std::string& name) {
  const auto link = [&] { return ::linkat(work_.get(), kWhiteout, dir_fd, name.c_str(), 0) == 0; };
  if (link()) return {};
  // EMLINK: it has as many names as the file system lets it have (link(2)). They stay, and another
  // inode begins.
  if (errno != ENOENT && errno != EMLINK) return layer::make_whiteout(dir_fd, name);
  if (errno == EMLINK && ::unlinkat(work_.get(), kWhiteout, 0) != 0) {
    return Error::from_errno("whiteout");
  }
  const Status made = layer::make_whiteout(work_.get(), kWhiteout);
  if (!made.ok() && made.error().error_number() != EEXIST) return made;
  return link() ? Status() : layer::make_whiteout(dir_fd, name);
}

// Makes (parent, name) a whiteout in one step, whatever lies there in upper.
Status Overlay::put_whiteout(Node& parent, int dir_fd, const std::string& name, bool replaces,
                             bool is_directory) {
  if (!replaces && make_whiteout(dir_fd, name).ok()) {
    ledger_.add(0, 1);
    charge_directory(parent);
    return {};
  }
  const bool replaces_directory = replaces && is_directory;
  const std::string staged = staged_name();
  // A directory that changes its parent is written to, and then emptied.
  Widened old_directory(dir_fd, name, 0700, privileged_ || !replaces_directory);
  if (Status made = make_whiteout(work_.get(), staged); !made.ok()) {
    // This file system holds no whiteouts: a row says the same. Written before the object goes.
    const std::string path = nodes_.child_path(parent, name);
    TRY(meta_->add_whiteout(path));
    whiteout_rows_.insert(path);
    struct stat st {};
    if (::fstatat(dir_fd, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return {};
    if (!replaces_directory) {
      if (::unlinkat(dir_fd, name.c_str(), 0) != 0) return Error::from_errno("unlink");
      return {};
    }
    if (::renameat(dir_fd, name.c_str(), work_.get(), staged.c_str()) != 0) {
      return Error::from_errno("rmdir");
    }
  } else {
    const unsigned flags = replaces_directory ? RENAME_EXCHANGE : 0;
    if (::renameat2(work_.get(), staged.c_str(), dir_fd, name.c_str(), flags) != 0) {
      const Error error = Error::from_errno("whiteout");
      (void)::unlinkat(work_.get(), staged.c_str(), 0);
      return error;
    }
    ledger_.add(0, 1);
    charge_directory(parent);
  }
  if (!replaces_directory) return {};
  // The directory lies in work/ now, and holds nothing but whiteouts.
  old_directory.forget();
  TRY_ASSIGN(const os::UniqueFd old, os::open_beneath(work_.get(), staged, O_RDONLY | O_DIRECTORY));
  TRY(clear_whiteouts(old.get()));
  if (::unlinkat(work_.get(), staged.c_str(), AT_REMOVEDIR) != 0) return Error::from_errno("rmdir");
  return {};
}

Status Overlay::clear_whiteouts(int dir_fd) {
  TRY_ASSIGN(const DirStream stream, open_stream(dir_fd, "."));
  for (;;) {
    TRY_ASSIGN(const std::optional<NamedType> entry, next_entry(stream.get()));
    if (!entry) return {};
    if (!S_ISCHR(entry->type)) continue;
    if (::unlinkat(dir_fd, entry->name.c_str(), 0) != 0) return Error::from_errno("whiteout");
    ledger_.add(0, -1);
  }
}

Status Overlay::mark_opaque(Node& dir) {
  const NodeName at = dir.names.front();
  TRY_ASSIGN(const DirRef parent, dirs_->upper(*at.parent));
  const Widened readable(parent->get(), at.name, 0700, privileged_);
  TRY_ASSIGN(const os::UniqueFd fd, open_upper_directory(dir));
  TRY(layer::set_opaque(fd.get(), marks_));
  // Nothing shows through any more, so the whiteouts have done their work.
  TRY(clear_whiteouts(fd.get()));
  if (!whiteout_rows_.empty()) {
    const std::string prefix = nodes_.path(dir) + "/";
    auto it = whiteout_rows_.lower_bound(prefix);
    while (it != whiteout_rows_.end() && it->starts_with(prefix)) {
      TRY(meta_->remove_whiteout(*it));
      it = whiteout_rows_.erase(it);
    }
  }
  dirs_->drop(DirCache::Tree::kLower, dir.id);
  for (const std::uint32_t layer : dir.parts) dirs_->drop_frozen(layer, dir.id);
  dir.merged = false;
  dir.parts.clear();
  frozen_names_.drop(dir.id);
  return {};
}

// Hidden entries count: a directory that holds some is not empty.
Result<bool> Overlay::is_empty(Node& dir) {
  bool empty = true;
  TRY(for_each_raw(dir, [&](ListedEntry&&) -> Result<bool> {
    empty = false;
    return false;
  }));
  return empty;
}

// Book-keeping after the name (parent, name) of the node went. `upper_before`: the object in upper
// before that, where the node lay there.
void Overlay::gone(Node& node, Node& parent, const std::string& name,
                   const struct stat& upper_before) {
  const Pin keep(nodes_, node);
  open_late(node);
  nodes_.remove_name(node, parent, name);
  if (node.is_dir()) {
    dirs_->drop(node.id);
    node.last.st_nlink = 0;
  } else if (node.last.st_nlink > 0) {
    --node.last.st_nlink;
  }
  if (!node.upper) return;
  ledger_.add(0, -1);
  if (!node.is_dir() && upper_before.st_nlink > 1) return;
  nodes_.forget_upper(node);
  (void)numbers_.forget(node.upper_inode).ok();
  (void)owners_.forget(node.upper_inode).ok();
  // An open file keeps its blocks until the last handle is closed.
  if (node.is_dir()) {
    ledger_.add(-node.blocks * 512, 0);
    node.blocks = 0;
  } else if (node.files.empty()) {
    ledger_.add(-static_cast<std::int64_t>(upper_before.st_blocks) * 512, 0);
    node.blocks = 0;
  }
}

Result<Overlay::Removal> Overlay::begin_removal(Node& parent, const std::string& name,
                                                const Found& found) {
  TRY(copy_up(parent));
  Removal removal;
  TRY_ASSIGN(removal.dir, dirs_->upper(parent));
  std::optional<LowerStat> lower = found.lower;
  if (!lower) {
    TRY_ASSIGN(lower, below_at(parent, name));
  }
  removal.over_lower = lower.has_value();
  if (lower) {
    TRY(record_lower(parent, name, *lower, nodes_.child_path(parent, name)));
  }
  if (found.upper) {
    removal.before = *found.upper;
  } else if (found.node->upper && ::fstatat(removal.dir->get(), name.c_str(), &removal.before,
                                            AT_SYMLINK_NOFOLLOW) != 0) {
    return Error::from_errno("remove: stat");
  }
  return removal;
}

Status Overlay::unlink(NodeId parent_id, const std::string& name) {
  TRY(writable());
  TRY_ASSIGN(Node * parent, live_directory(parent_id));
  TRY_ASSIGN(const Found found, find(*parent, name));
  Node& node = *found.node;
  if (node.is_dir()) return Error::from_errno("unlink", EISDIR);
  const Pin keep(nodes_, node);
  TRY_ASSIGN(const Removal removal, begin_removal(*parent, name, found));
  const int dir = removal.dir->get();
  if (removal.over_lower) {
    TRY(put_whiteout(*parent, dir, name, node.upper, false));
  } else if (node.upper && ::unlinkat(dir, name.c_str(), 0) != 0) {
    return Error::from_errno("unlink");
  }
  gone(node, *parent, name, removal.before);
  return {};
}

Status Overlay::remove_directory(NodeId parent_id, const std::string& name) {
  TRY(writable());
  TRY_ASSIGN(Node * parent, live_directory(parent_id));
  TRY_ASSIGN(const Found found, find(*parent, name));
  Node& node = *found.node;
  if (!node.is_dir()) return Error::from_errno("rmdir", ENOTDIR);
  const Pin keep(nodes_, node);
  TRY_ASSIGN(const bool empty, is_empty(node));
  if (!empty) return Error::from_errno("rmdir", ENOTEMPTY);
  TRY_ASSIGN(const Removal removal, begin_removal(*parent, name, found));
  const int dir = removal.dir->get();
  if (removal.over_lower) {
    TRY(put_whiteout(*parent, dir, name, node.upper, true));
  } else if (node.upper) {
    if (::unlinkat(dir, name.c_str(), AT_REMOVEDIR) != 0) {
      if (errno != ENOTEMPTY) return Error::from_errno("rmdir");
      const Widened readable(dir, name, 0700, privileged_);
      TRY_ASSIGN(const os::UniqueFd fd, open_upper_directory(node));
      TRY(clear_whiteouts(fd.get()));
      if (::unlinkat(dir, name.c_str(), AT_REMOVEDIR) != 0) {
        return Error::from_errno("rmdir");
      }
    }
  }
  gone(node, *parent, name, removal.before);
  return {};
}

}  // namespace cofferdam::overlay
