// Names of lower files that have several: every name that somebody asked for leads to one node, and
// once the file is copied up, every such name lies in upper.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "common/os/beneath.h"
#include "common/os/files.h"
#include "fsproxy/overlay/keep_times.h"
#include "fsproxy/overlay/lower_tree.h"
#include "fsproxy/overlay/overlay.h"
#include "fsproxy/overlay/widened.h"

namespace cofferdam::overlay {
namespace {

// By its birth too: the number of a file that is gone may have been given again.
Result<bool> is_other(int dir, const std::string& name, const LowerIdentity& file) {
  TRY_ASSIGN(const LowerStat found, stat_lower(dir, name));
  return found.identity.inode != file.inode || found.identity.birth_ns != file.birth_ns;
}

}  // namespace

Status Overlay::load_links() {
  struct stat index {};
  struct stat upper {};
  TRY_ASSIGN(os::UniqueFd dir,
             os::open_file(*options_.layer + "/index", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  if (::fstat(dir.get(), &index) != 0 || ::fstat(upper_root_.get(), &upper) != 0) {
    return Error::from_errno("layer");
  }
  if (index.st_dev != upper.st_dev) return Error("upper and index lie on different file systems");
  TRY_ASSIGN(const layer::StackHead head, layer::CheckpointTable(*meta_).head());
  std::set<std::uint32_t> epochs(frozen_layers_.begin(), frozen_layers_.end());
  epochs.insert(head.next);
  return links_.load(std::move(dir), *meta_, epochs,
                     [this](const std::string& path, const LowerIdentity& file) {
                       return covers_lower(path, file);
                     });
}

// Whether the name at the path shows no more, by what lies in upper and frozen layers; the file
// itself in one of them does not cover its own name.
Result<bool> Overlay::covers_lower(const std::string& path, const LowerIdentity& file) {
  std::vector<os::UniqueFd> dirs;
  dirs.emplace_back(::fcntl(upper_root_.get(), F_DUPFD_CLOEXEC, 3));
  for (const os::UniqueFd& frozen : frozen_roots_) {
    dirs.emplace_back(::fcntl(frozen.get(), F_DUPFD_CLOEXEC, 3));
  }
  bool cut = false;  // lower shows nothing here
  for (std::size_t from = 0;;) {
    const std::size_t slash = std::min(path.find('/', from), path.size());
    const std::string name = path.substr(from, slash - from);
    std::vector<os::UniqueFd> next;
    for (const os::UniqueFd& dir : dirs) {
      struct stat st {};
      if (::fstatat(dir.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno != ENOENT) return Error::from_errno("links");
        continue;
      }
      if (slash == path.size() || !S_ISDIR(st.st_mode)) {
        if (next.empty()) return is_other(dir.get(), name, file);
        cut = true;
        break;
      }
      TRY_ASSIGN(const bool opaque, is_opaque_child(dir.get(), name));
      TRY_ASSIGN(os::UniqueFd child, os::open_beneath(dir.get(), name, O_PATH | O_DIRECTORY));
      next.push_back(std::move(child));
      if (!opaque) continue;
      cut = true;
      break;
    }
    if (next.empty()) return cut || whiteout_rows_.contains(path.substr(0, slash));
    dirs = std::move(next);
    from = slash + 1;
  }
}

// Only names that may change: what is read only or hidden must keep what lower has, whatever
// happens to another name of the same file.
bool Overlay::may_share(const LowerStat& lower, const policy::FsDecision& decision) const {
  return options_.writable && !S_ISDIR(lower.st.st_mode) && decision.changeable();
}

std::uint64_t Overlay::shown_links(const Node& node, std::uint64_t links) {
  if (node.own()) {
    const std::uint64_t shown = links_.shown_links(node.upper_inode, links);
    return node.upper ? shown : shown - std::min(shown, links_.lost_names(node.upper_inode));
  }
  if (!node.shared) return links;
  const LinkGroup* group = links_.find(node.origin);
  return group == nullptr ? links : links - std::min<std::uint64_t>(links, group->covered.size());
}

// Whether the file has other names that show, or had when somebody unlinked one.
bool Overlay::has_more_names(const LowerStat& below) {
  return below.st.st_nlink > 1 || (below.layer != 0 && links_.find(below.identity) != nullptr);
}

// The names that it has where it lies, but for those in index/, which are nobody's.
std::uint64_t Overlay::names_of(const LowerStat& below) const {
  const std::uint64_t links = below.st.st_nlink;
  if (below.layer == 0) return links;
  return links - std::min(links, links_.entries_of(below.st.st_ino));
}

// The base of a lower name that is about to be copied up, replaced or deleted.
Status Overlay::record_lower(Node& dir, const std::string& name, const LowerStat& lower,
                             const std::string& path) {
  if (lower.layer == 0) {
    TRY_ASSIGN(const DirRef lower_dir, dirs_->lower(dir));
    TRY(records_->record(path, lower_dir->get(), name, lower));
  }
  if (S_ISDIR(lower.st.st_mode) || !has_more_names(lower)) return {};
  TRY_ASSIGN(const DirRef upper, dirs_->upper(dir));
  struct stat st {};
  if (::fstatat(upper->get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0) return {};
  TRY(links_.cover(lower.identity, names_of(lower), path));
  const LinkGroup* group = links_.find(lower.identity);
  return group != nullptr && group->copied() ? Status() : links_.settle(lower.identity);
}

// The copy of the file gets the lower name (dir, name), which upper does not have yet.
Result<struct stat> Overlay::give_name(Node& dir, const std::string& name, const LowerStat& lower,
                                       const std::string& path) {
  const Pin pin(nodes_, dir);
  TRY(copy_up(dir));
  TRY_ASSIGN(const DirRef upper, dirs_->upper(dir));
  TRY(record_lower(dir, name, lower, path));
  const LinkGroup* group = links_.find(lower.identity);
  if (group == nullptr || !group->copied()) return Error::from_errno("link", ESTALE);
  if (!links_.is_fresh(*group)) {
    TRY(renew_copy(lower.identity));
    group = links_.find(lower.identity);
  }
  {
    const KeepTimes times(upper->get());
    const Widened parent(upper->get(), ".", 0300, privileged_);
    if (Status linked = links_.link_copy(*group, upper->get(), name); !linked.ok()) {
      links_.uncover(lower.identity, path);
      return linked.error();
    }
  }
  charge_directory(dir);
  // Not refused for the quota: the name is the user's, and was there before.
  ledger_.add(0, 1);
  struct stat st {};
  if (::fstatat(upper->get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
    return Error::from_errno("link: stat");
  }
  return st;
}

// The copy that a group has is frozen: it gets one of its own in upper.
Status Overlay::renew_copy(const LowerIdentity& origin) {
  const LinkGroup* group = links_.find(origin);
  Node* node = nodes_.by_upper_inode(group->upper_inode);
  if (node != nullptr && !node->superseded && attached(*node)) {
    TRY(copy_up(*node));
  } else {
    const std::string name = links_.copy_name(*group);
    TRY_ASSIGN(const LowerStat frozen, stat_lower(links_.directory(), name));
    const auto make = [&](const std::string& staged) -> Result<os::UniqueFd> {
      if (!S_ISREG(frozen.st.st_mode)) {
        TRY(stage_other(frozen, links_.directory(), name, staged));
        return os::UniqueFd();
      }
      TRY_ASSIGN(const os::UniqueFd fd,
                 os::open_beneath(links_.directory(), name, O_RDONLY | O_NONBLOCK | O_NOCTTY));
      TRY_ASSIGN(os::UniqueFd copy, stage_copy(fd.get(), frozen.st.st_size, staged));
      TRY(copy_attributes_from(fd.get(), staged));
      return copy;
    };
    if (node != nullptr) {
      TRY(copy_from(*node, frozen, true, make));
    } else {
      // Nobody knows it now; whoever asks for a name of it finds the copy.
      Node& unknown = nodes_.create_unnamed(frozen.st.st_mode);
      nodes_.set_frozen(unknown, group->epoch, group->upper_inode);
      unknown.shown_inode = numbers_.shown(group->upper_inode);
      const Status copied = copy_from(unknown, frozen, true, make);
      nodes_.release(&unknown);
      TRY(copied);
    }
  }
  group = links_.find(origin);
  return links_.is_fresh(*group) ? Status() : Error::from_errno("link", ESTALE);
}

Result<Overlay::Found> Overlay::join_copy(Node& dir, const std::string& name,
                                          const LowerStat& lower, const std::string& path) {
  TRY_ASSIGN(struct stat st, give_name(dir, name, lower, path));
  Node* node = nodes_.by_upper_inode(st.st_ino);
  if (node == nullptr || node->superseded) {
    node = &nodes_.create(dir, name, st.st_mode);
    nodes_.set_upper(*node, st.st_ino);
    node->shown_inode = numbers_.shown(st.st_ino);
    node->blocks = st.st_blocks;
  } else {
    nodes_.add_name(*node, dir, name);
  }
  TRY(links_.settle(lower.identity));
  TRY_ASSIGN(const DirRef upper, dirs_->upper(dir));
  if (::fstatat(upper->get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
    return Error::from_errno("link: stat");
  }
  shape(*node, st);
  return Found{node, st};
}

// After the first name of a file was copied up: the others that are known follow. One that cannot
// is forgotten, and asked for again when it is looked up.
void Overlay::give_all_names(Node& node, const LowerIdentity& origin) {
  for (std::size_t i = 1; i < node.names.size();) {
    const NodeName at = node.names[i];
    const auto given = [&]() -> Status {
      TRY_ASSIGN(const std::optional<LowerStat> lower, below_at(*at.parent, at.name));
      if (!lower || lower->identity != origin) return Error::from_errno("link", ENOENT);
      TRY_ASSIGN(const struct stat st,
                 give_name(*at.parent, at.name, *lower, nodes_.child_path(*at.parent, at.name)));
      return st.st_ino == node.upper_inode ? Status() : Error::from_errno("link", ESTALE);
    }();
    if (given.ok()) {
      ++i;
      continue;
    }
    const Pin parent(nodes_, *at.parent);
    nodes_.remove_name(node, *at.parent, at.name);
  }
}

}  // namespace cofferdam::overlay
