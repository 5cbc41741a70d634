// What frozen layers show: between upper and lower, and never changed.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "fsproxy/overlay/content_copy.h"
#include "fsproxy/overlay/overlay.h"
#include "fsproxy/overlay/tree_walk.h"

namespace cofferdam::overlay {

// Names of a directory that lies in several frozen layers; read once.
Result<const FrozenDirectory*> Overlay::frozen_names(Node& dir) {
  if (const FrozenDirectory* known = frozen_names_.find(dir.id)) return known;
  FrozenDirectory names;
  for (const std::uint32_t layer : dir.parts) {
    TRY_ASSIGN(const DirRef part, dirs_->frozen(dir, layer));
    TRY_ASSIGN(const DirStream stream, open_stream(part->get(), "."));
    for (;;) {
      TRY_ASSIGN(std::optional<NamedType> entry, next_entry(stream.get()));
      if (!entry) break;
      const auto [at, added] = names.try_emplace(std::move(entry->name));
      FrozenName& name = at->second;
      if (added) {
        name.layer = layer;
        name.type = entry->type;
        name.inode = entry->inode;
      } else if (S_ISDIR(name.type) && !name.cut) {
        if (S_ISDIR(entry->type)) {
          name.more.push_back(layer);
        } else {
          name.cut = true;
        }
      }
    }
  }
  return &frozen_names_.keep(dir.id, std::move(names));
}

// What the frozen layers have at a name: the newest of them that has something.
Result<std::optional<LowerStat>> Overlay::frozen_at(Node& dir, const std::string& name) {
  if (dir.parts.empty()) return std::optional<LowerStat>();
  std::uint32_t layer = dir.parts.front();
  if (dir.parts.size() > 1) {
    TRY_ASSIGN(const FrozenDirectory* names, frozen_names(dir));
    const auto found = names->find(name);
    if (found == names->end()) return std::optional<LowerStat>();
    layer = found->second.layer;
  }
  TRY_ASSIGN(const DirRef part, dirs_->frozen(dir, layer));
  auto st = stat_lower(part->get(), name);
  if (!st.ok()) {
    if (st.error().error_number() == ENOENT) return std::optional<LowerStat>();
    return st.error();
  }
  st->layer = layer;
  return std::optional<LowerStat>(*st);
}

// What shows where upper has nothing: of a frozen layer, or of lower.
Result<std::optional<LowerStat>> Overlay::below_at(Node& dir, const std::string& name) {
  TRY_ASSIGN(const std::optional<LowerStat> frozen, frozen_at(dir, name));
  if (!frozen) return lower_at(dir, name);
  if (layer::is_whiteout(frozen->st)) return std::optional<LowerStat>();
  return frozen;
}

// The frozen layers that show through the directory (dir, name), and whether lower does not.
Result<Overlay::Parts> Overlay::parts_of(Node& dir, const std::string& name) {
  Parts out;
  std::vector<std::uint32_t> layers;
  if (dir.parts.empty()) return out;
  if (dir.parts.size() == 1) {
    TRY_ASSIGN(const std::optional<LowerStat> found, frozen_at(dir, name));
    if (!found) return out;
    out.cut = !S_ISDIR(found->st.st_mode);
    if (!out.cut) layers.push_back(found->layer);
  } else {
    TRY_ASSIGN(const FrozenDirectory* names, frozen_names(dir));
    const auto found = names->find(name);
    if (found == names->end()) return out;
    out.cut = !S_ISDIR(found->second.type) || found->second.cut;
    if (S_ISDIR(found->second.type)) {
      layers.push_back(found->second.layer);
      layers.insert(layers.end(), found->second.more.begin(), found->second.more.end());
    }
  }
  for (const std::uint32_t layer : layers) {
    TRY_ASSIGN(const DirRef part, dirs_->frozen(dir, layer));
    out.layers.push_back(layer);
    TRY_ASSIGN(const bool opaque, is_opaque_child(part->get(), name));
    if (!opaque) continue;
    out.cut = true;
    break;
  }
  return out;
}

Result<Overlay::Found> Overlay::adopt_frozen(Node& dir, const std::string& name,
                                             const LowerStat& frozen, const std::string& path) {
  const bool is_dir = S_ISDIR(frozen.st.st_mode);
  const policy::FsDecision decision = options_.rules.decide(path, is_dir);
  if (!decision.visible()) {
    observer_.refused("lookup", path, decision);
    return Error::from_errno("lookup", ENOENT);
  }
  struct stat st = frozen.st;
  if (!is_dir && options_.writable) {
    const LinkGroup* group = links_.find(frozen.identity);
    if (group != nullptr && group->copied()) return join_copy(dir, name, frozen, path);
  }
  if (!is_dir) {
    Node* linked = nodes_.by_upper_inode(st.st_ino);
    if (linked != nullptr && !linked->superseded && linked->frozen == frozen.layer &&
        linked->type == (st.st_mode & S_IFMT)) {
      nodes_.add_name(*linked, dir, name);
      shape(*linked, st);
      return Found{linked, st};
    }
  }
  Parts parts;
  LowerIdentity origin;
  bool merged = false;
  if (is_dir) {
    TRY_ASSIGN(parts, parts_of(dir, name));
    if (dir.merged && !parts.cut) {
      TRY_ASSIGN(const std::optional<LowerStat> lower, lower_at(dir, name));
      merged = lower && S_ISDIR(lower->st.st_mode) && !lower->mount_root;
      if (merged) origin = lower->identity;
    }
  }
  Node& node = nodes_.create(dir, name, st.st_mode);
  nodes_.set_frozen(node, frozen.layer, st.st_ino);
  node.parts = std::move(parts.layers);
  node.shown_inode = numbers_.shown(st.st_ino);
  node.merged = merged;
  node.in_lower = merged;
  node.origin = origin;
  shape(node, st);
  return Found{&node, st};
}

// The directory that holds what upper does not have of the node: in a frozen layer or in lower.
Result<DirRef> Overlay::below_dir(Node& parent, std::uint32_t layer) {
  return layer != 0 ? dirs_->frozen(parent, layer) : dirs_->lower(parent);
}

bool Overlay::is_object_of(const Node& node, const LowerStat& found) {
  return node.frozen != 0 ? found.st.st_ino == node.upper_inode : found.identity == node.origin;
}

// Before a handle that was opened for writing is written through: what it leads to may be frozen.
Status Overlay::thaw(OpenFile& file) {
  if (!file.lower) return {};
  if (!file.writable || file.node->frozen == 0) return Error::from_errno("write", EBADF);
  if (attached(*file.node)) return copy_up(*file.node);
  return copy_without_name(*file.node);
}

// A copy of a frozen file that no name leads to any more, but descriptors do; other names of it may
// exist that nobody asked for yet.
Status Overlay::copy_without_name(Node& node) {
  TRY(writable());
  if (node.files.empty()) return Error::from_errno("write", ESTALE);
  const int fd = node.files.front()->fd.get();
  TRY_ASSIGN(const LowerStat frozen, stat_lower(fd, ""));
  return copy_from(node, frozen, false, [&](const std::string& staged) -> Result<os::UniqueFd> {
    TRY_ASSIGN(os::UniqueFd copy, stage_copy(fd, frozen.st.st_size, staged));
    TRY(copy_attributes_from(fd, staged));
    return copy;
  });
}

// The copy of a frozen object that `make` makes in work/, the descriptor of which it gives where it
// is a file. `must_link`: another name waits for it.
Status Overlay::copy_from(Node& node, LowerStat frozen, bool must_link, const MakeStaged& make) {
  frozen.layer = node.frozen;
  const std::uint64_t bytes = static_cast<std::uint64_t>(frozen.st.st_blocks) * 512;
  TRY(reserve("copy_up", "", bytes, 1));
  const std::string staged = staged_name();
  os::UniqueFd copy;
  struct stat st {};
  const auto build = [&]() -> Status {
    TRY_ASSIGN(copy, make(staged));
    TRY(dress(work_.get(), staged, frozen.st));
    if (::fstatat(work_.get(), staged.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0)
      return Error::from_errno("copy up: stat");
    TRY(numbers_.remember(st.st_ino, node.shown_inode));
    TRY(owners_.set(st.st_ino, st, owner_of(node, frozen.st)));
    if (must_link || node.last.st_nlink > 0) {
      TRY(links_.add_copy(frozen.identity, names_of(frozen), st.st_ino, work_.get(), staged));
      TRY(links_.replace_copy(frozen.st.st_ino, st.st_ino, work_.get(), staged));
    }
    return {};
  };
  const Status built = build();
  (void)::unlinkat(work_.get(), staged.c_str(), 0);
  if (!built.ok()) {
    ledger_.add(-static_cast<std::int64_t>(bytes), -1);
    return built;
  }
  ledger_.settle(bytes, static_cast<std::int64_t>(st.st_blocks) * 512);
  ledger_.add(0, -1);
  nodes_.set_upper(node, st.st_ino);
  node.blocks = st.st_blocks;
  return copy ? move_handles(node, copy.get()) : Status();
}

Result<os::UniqueFd> Overlay::stage_copy(int from, off_t size, const std::string& staged) {
  os::UniqueFd source;
  if ((::fcntl(from, F_GETFL) & O_ACCMODE) == O_WRONLY) {
    const std::string own = "/proc/self/fd/" + std::to_string(from);
    source.reset(::open(own.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  } else {
    source.reset(::fcntl(from, F_DUPFD_CLOEXEC, 3));
  }
  if (!source) return Error::from_errno("copy up: open");
  os::UniqueFd to(::openat(work_.get(), staged.c_str(),
                           O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!to) return Error::from_errno("copy up: create");
  TRY(copy_content(source.get(), to.get(), size));
  return to;
}

// Who holds the file open goes on with the copy. `copy`: open for reading and writing.
Status Overlay::move_handles(Node& node, int copy) {
  for (OpenFile* open : node.files) {
    if (!open->lower) continue;
    os::UniqueFd again(::fcntl(copy, F_DUPFD_CLOEXEC, 3));
    if (!again) return Error::from_errno("copy up: reopen");
    open->fd = std::move(again);
    open->lower = false;
  }
  return {};
}

}  // namespace cofferdam::overlay
