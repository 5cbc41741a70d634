// How a name of the merged view is found: upper, then whiteouts, then lower.
#include <fcntl.h>
#include <unistd.h>

#include "fsproxy/overlay/overlay.h"
#include "fsproxy/overlay/widened.h"

namespace cofferdam::overlay {
namespace {

// One component: nothing that a system call could take for a path.
bool is_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos &&
         name.find('\0') == name.npos;
}

}  // namespace

bool Overlay::attached(const Node& node) const {
  for (const Node* at = &node; at->id != kRootId; at = at->names.front().parent) {
    if (at->names.empty()) return false;
  }
  return true;
}

Result<Node*> Overlay::live(NodeId id) {
  Node* node = nodes_.find(id);
  if (node == nullptr) return Error::from_errno("node", ESTALE);
  if (!attached(*node)) return Error::from_errno("node", ENOENT);
  return node;
}

Result<Node*> Overlay::live_directory(NodeId id) {
  TRY_ASSIGN(Node * node, live(id));
  if (!node->is_dir()) return Error::from_errno("node", ENOTDIR);
  return node;
}

bool Overlay::has_whiteout_row(Node& dir, const std::string& name) const {
  return !whiteout_rows_.empty() && whiteout_rows_.contains(nodes_.child_path(dir, name));
}

// The entry no longer leads to the node, because another object took its place.
void Overlay::detach(Node& node, Node& dir, const std::string& name) {
  if (node.is_dir()) dirs_->drop(node.id);
  const Pin parent(nodes_, dir);
  nodes_.remove_name(node, dir, name);
  node.last.st_nlink = 0;
  nodes_.release(&node);
}

Result<std::optional<LowerStat>> Overlay::lower_at(Node& dir, const std::string& name) {
  if (!dir.merged) return std::optional<LowerStat>();
  auto lower_dir = dirs_->lower(dir);
  if (!lower_dir.ok()) {
    const int number = lower_dir.error().error_number();
    // The user removed or replaced the directory below: nothing of it is left to merge.
    if (number == ENOENT || number == ESTALE || number == EXDEV || number == ENOTDIR ||
        number == ELOOP) {
      return std::optional<LowerStat>();
    }
    return lower_dir.error();
  }
  auto lower = stat_lower((*lower_dir)->get(), name);
  if (lower.ok()) return std::optional<LowerStat>(*lower);
  if (lower.error().error_number() == ENOENT) return std::optional<LowerStat>();
  return lower.error();
}

// The user may have replaced the lower directory that this one merges with.
Status Overlay::follow_lower(Node& node, Node& dir, const std::string& name) {
  TRY_ASSIGN(const std::optional<LowerStat> lower, lower_at(dir, name));
  const bool there = lower && S_ISDIR(lower->st.st_mode) && !lower->mount_root;
  if (there && lower->identity == node.origin) return {};
  // What was held of the old one must not go on showing through.
  if (there) node.origin = lower->identity;
  dirs_->drop(DirCache::Tree::kLower, node.id);
  if (node.watched) options_.watch->remove(node.id);
  node.watched = node.watch_refused = false;
  return {};
}

Result<bool> Overlay::is_opaque_child(int dir_fd, const std::string& name) {
  // Its owner may have taken the permission away from itself; the mark must still be read.
  const Widened readable(dir_fd, name, 0500, privileged_);
  const os::UniqueFd fd(
      ::openat(dir_fd, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return Error::from_errno("opaque mark");
  return layer::is_opaque(fd.get());
}

Result<Overlay::Found> Overlay::find(Node& dir, const std::string& name, Gap* gap) {
  if (!is_name(name)) return Error::from_errno("name", EINVAL);
  Node* known = nodes_.child(dir, name);
  const auto none = [&]() -> Error {
    if (known != nullptr) detach(*known, dir, name);
    return Error::from_errno("lookup", ENOENT);
  };
  if (dir.upper) {
    TRY_ASSIGN(const DirRef upper, dirs_->upper(dir));
    struct stat st {};
    if (::fstatat(upper->get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0) {
      if (layer::is_whiteout(st)) {
        if (gap != nullptr) *gap = {true, has_whiteout_row(dir, name)};
        return none();
      }
      if (known != nullptr && known->upper && known->upper_inode == st.st_ino) {
        if (known->merged) TRY(follow_lower(*known, dir, name));
        Found found{known, st, st};
        shape(*known, found.st);
        return found;
      }
      if (known != nullptr) detach(*known, dir, name);
      TRY_ASSIGN(Found found, adopt_upper(dir, name, st, nodes_.child_path(dir, name)));
      found.upper = st;
      return found;
    }
    if (errno != ENOENT) return Error::from_errno("lookup");
  }
  if (has_whiteout_row(dir, name)) {
    if (gap != nullptr) gap->row = true;
    return none();
  }
  TRY_ASSIGN(const std::optional<LowerStat> frozen, frozen_at(dir, name));
  if (frozen) {
    if (layer::is_whiteout(frozen->st)) return none();
    if (known != nullptr && known->frozen == frozen->layer &&
        known->upper_inode == frozen->st.st_ino) {
      if (known->merged) TRY(follow_lower(*known, dir, name));
      struct stat st = frozen->st;
      shape(*known, st);
      return Found{known, st};
    }
    if (known != nullptr) detach(*known, dir, name);
    return adopt_frozen(dir, name, *frozen, nodes_.child_path(dir, name));
  }
  TRY_ASSIGN(const std::optional<LowerStat> lower, lower_at(dir, name));
  if (!lower) {
    tell_outside(dir, name);
    return none();
  }
  if (known != nullptr && !known->own() && known->origin == lower->identity &&
      known->type == (lower->st.st_mode & S_IFMT)) {
    Found found{known, lower->st, {}, lower};
    shape(*known, found.st);
    return found;
  }
  if (known != nullptr) detach(*known, dir, name);
  TRY_ASSIGN(Found found, adopt_lower(dir, name, *lower, nodes_.child_path(dir, name)));
  // Not of what joined a copy.
  if (!found.node->upper) found.lower = lower;
  return found;
}

// A name of HOME that is never shown need not be there to be asked for: the question is the event.
void Overlay::tell_outside(Node& dir, const std::string& name) {
  const std::string path = nodes_.child_path(dir, name);
  const policy::FsDecision decision = options_.rules.decide(path, false);
  if (decision.action == policy::FsAction::kOutside) observer_.refused("lookup", path, decision);
}

Result<std::optional<Overlay::Found>> Overlay::find_optional(Node& dir, const std::string& name,
                                                             Gap* gap) {
  auto found = find(dir, name, gap);
  if (found.ok()) return std::optional<Found>(*found);
  if (found.error().error_number() == ENOENT) return std::optional<Found>();
  return found.error();
}

Result<Overlay::Found> Overlay::adopt_upper(Node& dir, const std::string& name,
                                            const struct stat& raw, const std::string& path) {
  const policy::FsDecision decision = options_.rules.decide(path, S_ISDIR(raw.st_mode));
  if (!decision.visible()) {
    observer_.refused("lookup", path, decision);
    return Error::from_errno("lookup", ENOENT);
  }
  struct stat st = raw;
  if (!S_ISDIR(st.st_mode)) {
    Node* linked = nodes_.by_upper_inode(st.st_ino);
    if (linked != nullptr && !linked->superseded && linked->upper &&
        linked->type == (st.st_mode & S_IFMT)) {
      nodes_.add_name(*linked, dir, name);
      shape(*linked, st);
      return Found{linked, st};
    }
  }
  bool merged = false;
  LowerIdentity origin;
  Parts parts;
  if (S_ISDIR(st.st_mode) && dir.stacked()) {
    TRY_ASSIGN(parts, parts_of(dir, name));
    if (dir.merged && !parts.cut) {
      TRY_ASSIGN(const std::optional<LowerStat> lower, lower_at(dir, name));
      merged = lower && S_ISDIR(lower->st.st_mode) && !lower->mount_root;
      if (merged) origin = lower->identity;
    }
    if (merged || !parts.layers.empty()) {
      TRY_ASSIGN(const DirRef upper, dirs_->upper(dir));
      TRY_ASSIGN(const bool opaque, is_opaque_child(upper->get(), name));
      if (opaque) {
        merged = false;
        parts.layers.clear();
      }
    }
  }
  Node& node = nodes_.create(dir, name, st.st_mode);
  nodes_.set_upper(node, st.st_ino);
  node.shown_inode = numbers_.shown(st.st_ino);
  node.blocks = st.st_blocks;
  node.parts = std::move(parts.layers);
  node.merged = merged;
  node.in_lower = merged;
  node.origin = origin;
  shape(node, st);
  return Found{&node, st};
}

Result<Overlay::Found> Overlay::adopt_lower(Node& dir, const std::string& name,
                                            const LowerStat& lower, const std::string& path) {
  const policy::FsDecision decision = options_.rules.decide(path, S_ISDIR(lower.st.st_mode));
  if (!decision.visible()) {
    observer_.refused("lookup", path, decision);
    return Error::from_errno("lookup", ENOENT);
  }
  // The user may give a file another name at any time: whether it has several is asked each time.
  const bool shares = may_share(lower, decision);
  if (shares && lower.st.st_nlink > 1) {
    const LinkGroup* group = links_.find(lower.identity);
    if (group != nullptr && group->copied()) return join_copy(dir, name, lower, path);
    Node* other = nodes_.by_origin(lower.identity);
    if (other != nullptr && !other->superseded && other->type == (lower.st.st_mode & S_IFMT)) {
      nodes_.add_name(*other, dir, name);
      struct stat st = lower.st;
      shape(*other, st);
      return Found{other, st};
    }
  }
  Node& node = nodes_.create(dir, name, lower.st.st_mode);
  node.in_lower = true;
  node.merged = node.is_dir() && !lower.mount_root;
  node.origin = lower.identity;
  node.shown_inode = lower.st.st_ino;
  if (shares) nodes_.share(node);
  struct stat st = lower.st;
  shape(node, st);
  return Found{&node, st};
}

Owner Overlay::owner_of(const Node& node, const struct stat& disk) const {
  // What has no name any more may have no row either: it keeps its owner in memory.
  if (!node.linked()) return {node.last.st_uid, node.last.st_gid};
  return node.own() ? owners_.of(node.upper_inode, disk) : owners_.shown(disk);
}

void Overlay::shape(Node& node, struct stat& st) {
  const Owner owner = owner_of(node, st);
  st.st_uid = owner.uid;
  st.st_gid = owner.gid;
  st.st_ino = node.shown_inode;
  if (node.is_dir()) {
    // Where layers merge nobody has counted, and the number would tell of hidden directories.
    if (!node.linked()) {
      st.st_nlink = 0;
    } else if (!node.upper || node.stacked()) {
      st.st_nlink = 1;
    }
  } else {
    st.st_nlink = shown_links(node, st.st_nlink);
  }
  node.last = st;
}

Entry Overlay::entry_of(Node& node, struct stat st) {
  Entry out{&node, st};
  // Of several names of a lower file, only those in watched directories would tell.
  const bool told = node.names.size() == 1 && node.names.front().parent->watched;
  out.name_stable = node.own() || told;
  out.attributes_stable = node.own() || (node.is_dir() ? node.watched : told && st.st_nlink == 1);
  return out;
}

Result<struct stat> Overlay::stat_node(Node& node) {
  struct stat st {};
  if (!attached(node)) {
    for (const OpenFile* file : node.files) {
      const bool of_lower = file->lower && !node.superseded && node.frozen == 0;
      if (of_lower || ::fstat(file->fd.get(), &st) != 0) continue;
      const nlink_t links = node.last.st_nlink;
      shape(node, st);
      // What a frozen layer keeps is no name any more.
      if (node.frozen != 0) st.st_nlink = node.last.st_nlink = links;
      return st;
    }
    return node.last;
  }
  if (node.id == kRootId) {
    if (node.upper) {
      if (::fstat(upper_root_.get(), &st) != 0) return Error::from_errno("stat");
    } else {
      TRY_ASSIGN(const LowerStat lower, stat_lower(dirs_->root(DirCache::Tree::kLower)->get(), ""));
      st = lower.st;
    }
    shape(node, st);
    return st;
  }
  const NodeName& at = node.names.front();
  if (node.own()) {
    TRY_ASSIGN(const DirRef dir, own_dir(node));
    if (::fstatat(dir->get(), at.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      return Error::from_errno("stat");
    }
    shape(node, st);
    return st;
  }
  TRY_ASSIGN(const DirRef dir, dirs_->lower(*at.parent));
  auto lower = stat_lower(dir->get(), at.name);
  if (!lower.ok() && lower.error().error_number() != ENOENT) return lower.error();
  if (!lower.ok() || lower->identity != node.origin) return Error::from_errno("stat", ESTALE);
  st = lower->st;
  if (node.cached && !node.files.empty() && *node.cached != version_of(st)) {
    observer_.changed_under(nodes_.path(node), node.id);
    node.cached = version_of(st);
    // Once is enough: not again when they are closed.
    for (OpenFile* file : node.files) {
      if (file->lower) file->opened = *node.cached;
    }
  }
  shape(node, st);
  return st;
}

}  // namespace cofferdam::overlay
