#include "common/layer/squash.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common/layer/checkpoint_table.h"
#include "common/layer/layer_marks.h"
#include "common/layer/layer_stack.h"
#include "common/layer/user_attributes.h"
#include "common/os/files.h"
#include "common/os/tree_paths.h"

namespace cofferdam::layer {
namespace {

namespace fs = std::filesystem;

// Where the new layer grows: nothing that recover_layers() takes for a layer.
constexpr const char* kGrowing = "squash";

struct Pending {
  std::string path;
  bool cut = false;  // nothing of lower shows
};

class Folder final {
 public:
  Folder(std::vector<os::UniqueFd> roots, os::UniqueFd to, MetaStore& meta)
      : roots_(std::move(roots)), to_(std::move(to)), meta_(meta), marks_(own_mark_namespace()) {}

  Status fold() {
    TRY(meta_.for_each_shown_inode(
        [&](std::uint64_t inode, std::uint64_t shown) { shown_[inode] = shown; }));
    std::vector<Pending> pending{{"", false}};
    std::vector<std::string> made;
    while (!pending.empty()) {
      const Pending dir = std::move(pending.back());
      pending.pop_back();
      TRY(fold_directory(dir, pending));
      made.push_back(dir.path);
    }
    // Times and modes when nothing is made below any more, the deepest first.
    for (auto it = made.rbegin(); it != made.rend(); ++it) TRY(dress(*it));
    return {};
  }

  // Inode numbers and owners of directories, and groups of names that are counted anew.
  Status remember() {
    for (const auto& [inode, shown] : numbers_) TRY(meta_.set_shown_inode(inode, shown));
    for (const auto& [old, inode] : owners_) TRY(meta_.copy_owner(old, inode));
    std::vector<LinkGroupRecord> obsolete;
    TRY(meta_.for_each_link_group([&](const LinkGroupRecord& group) {
      if (group.upper == 0 && several_.contains(group.inode)) obsolete.push_back(group);
    }));
    for (const LinkGroupRecord& group : obsolete) {
      TRY(meta_.forget_link_group(group.inode, group.birth_ns));
    }
    return {};
  }

 private:
  struct Parts {
    std::vector<os::UniqueFd> dirs;  // the newest first
    bool cut = false;
  };

  Result<Parts> parts_of(const std::string& path) const {
    Parts at;
    for (const os::UniqueFd& root : roots_) {
      TRY_ASSIGN(os::UniqueFd dir, os::open_in_tree(root.get(), "", O_RDONLY | O_DIRECTORY));
      at.dirs.push_back(std::move(dir));
    }
    for (std::size_t from = 0; from < path.size();) {
      const std::size_t slash = std::min(path.find('/', from), path.size());
      const std::string name = path.substr(from, slash - from);
      from = slash + 1;
      std::vector<os::UniqueFd> next;
      bool cut = false;
      for (const os::UniqueFd& dir : at.dirs) {
        const auto st = os::stat_in(dir.get(), name);
        if (!st.ok() && st.error().error_number() == ENOENT) continue;
        if (!st.ok()) return st.error();
        cut = !S_ISDIR(st->st_mode);
        if (cut) break;
        TRY_ASSIGN(os::UniqueFd child, open_readable(dir.get(), name, st->st_mode));
        TRY_ASSIGN(cut, is_opaque(child.get()));
        next.push_back(std::move(child));
        if (cut) break;
      }
      at.dirs = std::move(next);
      at.cut = at.cut || cut;
    }
    return at;
  }

  // One name after the other: a path may be longer than any call takes.
  Result<os::UniqueFd> open_made(const std::string& path) const {
    TRY_ASSIGN(os::UniqueFd at, os::open_in_tree(to_.get(), "", O_RDONLY | O_DIRECTORY));
    for (std::size_t from = 0; from < path.size();) {
      const std::size_t slash = std::min(path.find('/', from), path.size());
      TRY_ASSIGN(
          at, os::open_in_tree(at.get(), path.substr(from, slash - from), O_RDONLY | O_DIRECTORY));
      from = slash + 1;
    }
    return at;
  }

  // Also where its owner took the permission away.
  static Result<os::UniqueFd> open_readable(int dir, const std::string& name, mode_t mode) {
    auto opened = os::open_in_tree(dir, name, O_RDONLY | O_DIRECTORY);
    if (opened.ok() || opened.error().error_number() != EACCES) return opened;
    if (::fchmodat(dir, name.c_str(), (mode & 07777U) | 0700U, 0) != 0) {
      return Error::from_errno("squash: chmod");
    }
    opened = os::open_in_tree(dir, name, O_RDONLY | O_DIRECTORY);
    if (::fchmodat(dir, name.c_str(), mode & 07777U, 0) != 0) {
      return Error::from_errno("squash: chmod");
    }
    return opened;
  }

  Status fold_directory(const Pending& at, std::vector<Pending>& pending) {
    TRY_ASSIGN(const Parts parts, parts_of(at.path));
    if (parts.dirs.empty()) return Error("squash: " + at.path + " is no directory any more", EIO);
    TRY_ASSIGN(const os::UniqueFd to, open_made(at.path));
    if (parts.cut && !at.cut) TRY(set_opaque(to.get(), marks_));
    std::unordered_set<std::string> seen;
    for (const os::UniqueFd& part : parts.dirs) {
      TRY(os::for_each_name(part.get(), [&](std::string_view name) -> Status {
        if (!seen.emplace(name).second) return {};
        return take(part.get(), std::string(name), to.get(), {at.path, parts.cut}, pending);
      }));
    }
    return {};
  }

  Status take(int from, const std::string& name, int to, const Pending& parent,
              std::vector<Pending>& pending) {
    TRY_ASSIGN(const struct stat st, os::stat_in(from, name));
    if (is_whiteout(st) && parent.cut) return {};
    if (!S_ISDIR(st.st_mode)) {
      if (!is_whiteout(st) && st.st_nlink > 1) several_.insert(st.st_ino);
      if (::linkat(from, name.c_str(), to, name.c_str(), 0) == 0) return {};
      // A whiteout has many names already, perhaps all that there may be.
      if (errno == EMLINK && is_whiteout(st)) return make_whiteout(to, name);
      return Error::from_errno("squash: link");
    }
    if (::mkdirat(to, name.c_str(), 0700) != 0) return Error::from_errno("squash: mkdir");
    pending.push_back({parent.path.empty() ? name : parent.path + "/" + name, parent.cut});
    return {};
  }

  Status dress(const std::string& path) {
    TRY_ASSIGN(const Parts parts, parts_of(path));
    TRY_ASSIGN(const os::UniqueFd to, open_made(path));
    struct stat st {};
    struct stat own {};
    if (::fstat(parts.dirs.front().get(), &st) != 0 || ::fstat(to.get(), &own) != 0) {
      return Error::from_errno("squash: stat");
    }
    if ((st.st_uid != own.st_uid || st.st_gid != own.st_gid) &&
        ::fchown(to.get(), st.st_uid, st.st_gid) != 0) {
      return Error::from_errno("squash: chown");
    }
    TRY_ASSIGN(const auto attributes, user_attributes(parts.dirs.front().get()));
    for (const std::string& name : attributes) {
      TRY_ASSIGN(const std::string value, attribute_value(parts.dirs.front().get(), name));
      if (::fsetxattr(to.get(), name.c_str(), value.data(), value.size(), 0) != 0) {
        return Error::from_errno("squash: xattr");
      }
    }
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    if (::fchmod(to.get(), st.st_mode & 07777U) != 0 || ::futimens(to.get(), times) != 0) {
      return Error::from_errno("squash: attributes");
    }
    const auto known = shown_.find(st.st_ino);
    numbers_[own.st_ino] = known == shown_.end() ? born_number(st.st_ino) : known->second;
    owners_.emplace_back(st.st_ino, own.st_ino);
    return {};
  }

  std::vector<os::UniqueFd> roots_;
  os::UniqueFd to_;
  MetaStore& meta_;
  MarkNamespace marks_;
  std::unordered_map<std::uint64_t, std::uint64_t> shown_;
  std::unordered_map<std::uint64_t, std::uint64_t> numbers_;     // of the new directories
  std::vector<std::pair<std::uint64_t, std::uint64_t>> owners_;  // old and new directories
  std::unordered_set<std::uint64_t> several_;                    // files with several names
};

// Copies that wait for further names (fsproxy's index/) belong to the new layer's epoch, too, and
// those of the present upper to that of the next.
Status keep_index(const fs::path& layer, const std::vector<Checkpoint>& chain,
                  std::uint32_t present, std::uint32_t number) {
  const auto dir = os::open_file(layer / "index", O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!dir.ok()) return dir.error().error_number() == ENOENT ? Status() : Status(dir.error());
  std::unordered_map<std::string, std::pair<std::uint32_t, std::string>> newest;
  const auto key_of = [](const std::string& name) {
    return name.substr(0, name.find('-', name.find('-') + 1));
  };
  std::vector<std::string> current;
  TRY(os::for_each_name(dir->get(), [&](std::string_view text) -> Status {
    const std::string name(text);
    const std::uint32_t epoch = index_epoch(name);
    if (epoch == present) {
      current.push_back(name);
      return {};
    }
    if (std::none_of(chain.begin(), chain.end(),
                     [&](const Checkpoint& one) { return one.layer == epoch; })) {
      return {};
    }
    auto& best = newest[key_of(name)];
    if (epoch >= best.first) best = {epoch, name};
    return {};
  }));
  const auto add = [&](const std::string& name, std::uint32_t epoch) -> Status {
    const std::string further = key_of(name) + "-" + std::to_string(epoch);
    if (::linkat(dir->get(), name.c_str(), dir->get(), further.c_str(), 0) == 0) return {};
    return errno == EEXIST ? Status() : Status(Error::from_errno("squash: index"));
  };
  for (const auto& [key, best] : newest) TRY(add(best.second, number));
  for (const std::string& name : current) TRY(add(name, number + 1));
  return {};
}

}  // namespace

Result<std::size_t> squash_layers(const fs::path& layer, MetaStore& meta) {
  TRY(recover_layers(layer, meta));
  const CheckpointTable table(meta);
  TRY_ASSIGN(const StackHead head, table.head());
  TRY_ASSIGN(const std::vector<Checkpoint> chain, table.chain());
  if (chain.size() < 2) return std::size_t{0};
  if (has_users(layer)) {
    return Error("another sandbox was forked from this one and stands on its layers", EBUSY);
  }
  TRY_ASSIGN(const auto borrowed, borrowed_layers(layer));
  if (!borrowed.empty()) {
    return Error("it stands on layers of the sandbox that it was forked from", EBUSY);
  }
  TRY_ASSIGN(std::vector<FrozenLayer> frozen, open_frozen(layer, meta));
  std::vector<os::UniqueFd> roots;
  for (FrozenLayer& one : frozen) roots.push_back(std::move(one.root));
  const fs::path growing = layer / "layers" / kGrowing;
  TRY(os::make_directories(growing / "upper", 0700));
  TRY_ASSIGN(os::UniqueFd to,
             os::open_file(growing / "upper", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  const int disk = to.get();
  Folder folder(std::move(roots), std::move(to), meta);
  TRY(folder.fold());
  // Not that of the present upper, in whose epoch there may be copies already.
  const std::uint32_t number = head.next + 1;
  TRY(keep_index(layer, chain, head.next, number));
  TRY(os::sync_file_system(disk));
  const fs::path place = layer / "layers" / std::to_string(number);
  if (::rename(growing.c_str(), place.c_str()) != 0) return Error::from_errno("squash: rename");
  TRY(os::sync_file_system(disk));
  Checkpoint folded = chain.front();
  folded.layer = number;
  folded.parent = 0;
  TRY(folder.remember());
  TRY(CheckpointTable(meta).replace(meta, {folded}, number));
  TRY(recover_layers(layer, meta));
  return chain.size();
}

}  // namespace cofferdam::layer
