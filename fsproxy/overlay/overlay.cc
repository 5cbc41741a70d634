#include "fsproxy/overlay/overlay.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>

#include "common/base/check.h"
#include "common/layer/layer_stack.h"
#include "common/os/beneath.h"
#include "common/os/files.h"
#include "fsproxy/overlay/tree_walk.h"

namespace cofferdam::overlay {
namespace {

std::int64_t now_ns() {
  struct timespec now {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return to_ns(now);
}

}  // namespace

Overlay::Overlay(Options options, Ledger& ledger, Observer& observer)
    : options_(std::move(options)),
      ledger_(ledger),
      observer_(observer),
      owners_(options_.owners) {}

Result<std::unique_ptr<Overlay>> Overlay::open(Options options, Ledger& ledger,
                                               Observer& observer) {
  std::unique_ptr<Overlay> out(new Overlay(std::move(options), ledger, observer));
  Overlay& self = *out;
  if (!self.options_.layer && !self.options_.lower) return Error("a mount needs lower or a layer");
  if (self.options_.writable && !self.options_.layer)
    return Error("a writable mount needs a layer");
  self.privileged_ = ::geteuid() == 0;
  self.gives_away_ = self.privileged_ && (self.options_.owner_uid != ::geteuid() ||
                                          self.options_.owner_gid != ::getegid());
  self.marks_ = layer::own_mark_namespace();
  os::UniqueFd lower;
  if (self.options_.lower) {
    // Whoever started this has resolved the path: a link there came later, from somebody else.
    auto opened = os::open_unlinked(*self.options_.lower, O_PATH | O_DIRECTORY);
    if (!opened.ok() && opened.error().error_number() == ELOOP) {
      return Error(*self.options_.lower + " has become a link: nothing is shown through it");
    }
    if (!opened.ok()) return opened.error();
    lower = std::move(*opened);
  }
  os::UniqueFd upper;
  bool fresh = false;
  if (self.options_.layer) {
    const std::filesystem::path layer = *self.options_.layer;
    if (lower) {
      TRY_ASSIGN(const os::UniqueFd fd, os::open_file(layer, O_PATH | O_DIRECTORY));
      TRY(self.keep_apart(lower.get(), fd.get()));
    }
    fresh = !std::filesystem::exists(layer / "meta");
    TRY(self.open_layer());
    TRY_ASSIGN(upper, os::open_file(layer / "upper", O_PATH | O_DIRECTORY | O_NOFOLLOW));
  }
  self.dirs_ = std::make_unique<DirCache>(self.nodes_, std::move(upper), std::move(lower),
                                          self.options_.dir_capacity);
  self.nodes_.on_free([&self](Node& node) {
    if (!node.is_dir()) return;
    self.dirs_->drop(node.id);
    self.frozen_names_.drop(node.id);
    if (node.watched) self.options_.watch->remove(node.id);
  });
  if (self.options_.layer) TRY(self.open_frozen_layers());
  TRY(self.set_up_root(fresh));
  if (self.options_.layer) TRY(self.count_usage());
  return out;
}

Status Overlay::open_layer() {
  const std::filesystem::path layer = *options_.layer;
  for (const char* name : {"upper", "work", "index"}) {
    TRY(os::make_directories(layer / name, 0700));
  }
  TRY_ASSIGN(meta_, layer::MetaStore::open(layer / "meta", now_ns()));
  TRY(layer::recover_layers(layer, *meta_).context("frozen layers"));
  TRY_ASSIGN(work_, os::open_file(layer / "work", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  TRY(remove_below(work_.get()).context("empty work"));
  TRY_ASSIGN(upper_root_, os::open_file(layer / "upper", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  struct stat work {};
  struct stat upper {};
  if (::fstat(work_.get(), &work) != 0 || ::fstat(upper_root_.get(), &upper) != 0) {
    return Error::from_errno("layer");
  }
  if (work.st_dev != upper.st_dev) return Error("upper and work lie on different file systems");
  TRY_ASSIGN(const auto whiteouts, meta_->whiteouts());
  whiteout_rows_.insert(whiteouts.begin(), whiteouts.end());
  TRY(numbers_.load(&*meta_));
  TRY(owners_.load(&*meta_));
  records_ = std::make_unique<Records>(options_.record ? &*meta_ : nullptr, ledger_);
  return {};
}

Status Overlay::set_up_root(bool fresh) {
  if (!records_) records_ = std::make_unique<Records>(nullptr, ledger_);
  Node& root = nodes_.root();
  std::optional<LowerStat> lower;
  if (options_.lower) {
    TRY_ASSIGN(lower, stat_lower(dirs_->root(DirCache::Tree::kLower)->get(), ""));
    if (!S_ISDIR(lower->st.st_mode)) return Error::from_errno(*options_.lower, ENOTDIR);
    root.in_lower = true;
    root.merged = true;
    root.origin = lower->identity;
    root.shown_inode = lower->st.st_ino;
  }
  if (!options_.layer) return {};
  if (fresh && lower) {
    const int fd = upper_root_.get();
    const struct timespec times[2] = {lower->st.st_atim, lower->st.st_mtim};
    if (gives_away_ && ::fchown(fd, options_.owner_uid, options_.owner_gid) != 0) {
      return Error::from_errno("chown upper");
    }
    if (::fchmod(fd, lower->st.st_mode & 07777U) != 0 || ::futimens(fd, times) != 0) {
      return Error::from_errno("set up upper");
    }
  } else if (fresh && gives_away_ &&
             ::fchown(upper_root_.get(), options_.owner_uid, options_.owner_gid) != 0) {
    return Error::from_errno("chown upper");
  }
  struct stat st {};
  if (::fstat(upper_root_.get(), &st) != 0) return Error::from_errno("stat upper");
  nodes_.set_upper(root, st.st_ino);
  if (fresh && lower) TRY(owners_.set(st.st_ino, st, owners_.shown(lower->st)));
  if (!lower) root.shown_inode = numbers_.shown(st.st_ino);
  return {};
}

Status Overlay::count_usage() {
  std::int64_t bytes = 0;
  std::int64_t entries = 0;
  std::set<ino_t> linked;
  const auto add_bytes = [&](const struct stat& st) {
    // A file with several names is stored once.
    if (!S_ISDIR(st.st_mode) && st.st_nlink > 1 && !linked.insert(st.st_ino).second) return;
    bytes += static_cast<std::int64_t>(st.st_blocks) * 512;
  };
  TRY(walk_below(upper_root_.get(), [&](const struct stat& st) {
    ++entries;
    add_bytes(st);
  }));
  for (const os::UniqueFd& frozen : frozen_roots_) {
    TRY(walk_below(frozen.get(), [&](const struct stat& st) {
      ++entries;
      add_bytes(st);
    }));
  }
  TRY(walk_below(links_.directory(), add_bytes));
  bytes += static_cast<std::int64_t>(meta_->stored_bytes());
  ledger_.add(bytes, entries);
  // An empty directory costs nothing, what makes it large does.
  nodes_.root().blocks = 8;
  charge_directory(nodes_.root());
  return {};
}

// A workload that saw its own upper could forge what is in it.
Status Overlay::keep_apart(int lower, int layer) {
  struct stat wanted {};
  struct stat st {};
  if (::fstat(lower, &wanted) != 0 || ::fstat(layer, &st) != 0) return Error::from_errno("layer");
  os::UniqueFd at(::fcntl(layer, F_DUPFD_CLOEXEC, 3));
  for (;;) {
    if (st.st_dev == wanted.st_dev && st.st_ino == wanted.st_ino) {
      return Error("the layer " + *options_.layer + " lies in the directory that it is for, " +
                   *options_.lower);
    }
    os::UniqueFd above(::openat(at.get(), "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
    struct stat next {};
    // A directory that we may not look at ends what we can know.
    if (!above || ::fstat(above.get(), &next) != 0) return {};
    if (next.st_dev == st.st_dev && next.st_ino == st.st_ino) return {};
    at = std::move(above);
    st = next;
  }
}

Result<Entry> Overlay::lookup(NodeId parent, const std::string& name) {
  TRY_ASSIGN(Node * dir, live_directory(parent));
  watch_lower(*dir);
  TRY_ASSIGN(const Found found, find(*dir, name));
  ++found.node->lookups;
  return entry_of(*found.node, found.st);
}

void Overlay::forget(NodeId id, std::uint64_t count) {
  Node* node = nodes_.find(id);
  if (node == nullptr || id == kRootId) return;
  node->lookups -= std::min(node->lookups, count);
  if (node->lookups > 0 || node->pins > 0 || !node->files.empty() || node->children) return;
  nodes_.release(node);
}

Result<Entry> Overlay::attributes(NodeId id) {
  Node* node = nodes_.find(id);
  if (node == nullptr) return Error::from_errno("node", ESTALE);
  TRY_ASSIGN(const struct stat st, stat_node(*node));
  return entry_of(*node, st);
}

Result<std::string> Overlay::read_symlink(NodeId id) {
  TRY_ASSIGN(Node * node, live(id));
  if (!S_ISLNK(node->type)) return Error::from_errno("readlink", EINVAL);
  const NodeName& at = node->names.front();
  if (node->own()) {
    TRY_ASSIGN(const DirRef dir, own_dir(*node));
    return read_link(dir->get(), at.name);
  }
  TRY_ASSIGN(const DirRef dir, dirs_->lower(*at.parent));
  TRY_ASSIGN(const LowerStat before, stat_lower(dir->get(), at.name));
  if (before.identity != node->origin) return Error::from_errno("readlink", ESTALE);
  TRY_ASSIGN(std::string target, read_link(dir->get(), at.name));
  if (!node->read_recorded && records_->active()) {
    records_->note_read(nodes_.path(*node), version_of(before.st));
    node->read_recorded = true;
  }
  return target;
}

bool Overlay::lower_can_add(NodeId parent) {
  const Node* node = nodes_.find(parent);
  return node == nullptr || (node->merged && !node->watched);
}

std::optional<std::string> Overlay::path_of(NodeId parent, std::string_view name) {
  const Node* node = nodes_.find(parent);
  if (node == nullptr || !attached(*node)) return std::nullopt;
  return nodes_.child_path(*node, name);
}

std::vector<std::string> Overlay::paths_of(NodeId id) {
  std::vector<std::string> out;
  const Node* node = nodes_.find(id);
  if (node == nullptr || !attached(*node)) return out;
  if (id == kRootId) return {""};
  for (const NodeName& at : node->names) out.push_back(nodes_.child_path(*at.parent, at.name));
  return out;
}

std::vector<Overlay::Idle> Overlay::idle_entries(std::size_t max) {
  std::vector<Idle> out;
  const NodeId end = nodes_.next_id();
  for (NodeId seen = 0; seen < end && out.size() < max; ++seen) {
    if (++prune_hand_ >= end) prune_hand_ = kRootId + 1;
    const Node* node = nodes_.find(prune_hand_);
    if (node == nullptr || node->is_dir() || !node->files.empty()) continue;
    for (const NodeName& at : node->names) out.push_back({at.parent->id, at.name});
  }
  return out;
}

bool Overlay::is_directory(NodeId id) {
  const Node* node = nodes_.find(id);
  return node != nullptr && node->is_dir();
}

NodeId Overlay::directory_of(NodeId id) {
  const Node* node = nodes_.find(id);
  return node == nullptr || node->names.size() != 1 ? 0 : node->names.front().parent->id;
}

struct statvfs Overlay::statistics() const {
  constexpr std::uint64_t kBlock = 4096;
  struct statvfs out {};
  const LedgerTotals limit = ledger_.limit();
  const LedgerTotals used = ledger_.used();
  out.f_bsize = kBlock;
  out.f_frsize = kBlock;
  out.f_blocks = limit.bytes / kBlock;
  out.f_bfree = (limit.bytes - std::min(limit.bytes, used.bytes)) / kBlock;
  out.f_files = limit.entries;
  out.f_ffree = limit.entries - std::min(limit.entries, used.entries);
  struct statvfs real {};
  if (upper_root_.valid() && ::fstatvfs(upper_root_.get(), &real) == 0) {
    // What the disk has left may be less than what the quota grants.
    const std::uint64_t free = real.f_bavail * real.f_frsize / kBlock;
    out.f_bfree = std::min(out.f_bfree, free);
  }
  if (!options_.writable) out.f_bfree = out.f_ffree = 0;
  out.f_bavail = out.f_bfree;
  out.f_favail = out.f_ffree;
  out.f_namemax = 255;
  return out;
}

}  // namespace cofferdam::overlay
