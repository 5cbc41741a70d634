// Directory listings: a snapshot of the merged entries, taken at opendir.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "common/os/beneath.h"
#include "fsproxy/overlay/overlay.h"
#include "fsproxy/overlay/tree_walk.h"

namespace cofferdam::overlay {
namespace {

// Positive, and above those of "." and "..".
std::uint64_t offset_of(std::string_view name) {
  if (name == ".") return 1;
  if (name == "..") return 2;
  return (std::hash<std::string_view>()(name) >> 2U) | 1024U;
}

}  // namespace

void Listing::add(const ListedEntry& entry) {
  places_.push_back({names_.size(), entry.shown_inode, offset_of(entry.name), entry.type});
  names_ += entry.name;
  names_ += '\0';
}

ListedEntry Listing::operator[](std::size_t at) const {
  const Place& place = places_[at];
  return {std::string(names_.c_str() + place.name), place.type, place.shown_inode, place.offset};
}

void Listing::sort() {
  std::sort(places_.begin(), places_.end(), [&](const Place& a, const Place& b) {
    if (a.offset != b.offset) return a.offset < b.offset;
    return std::strcmp(names_.c_str() + a.name, names_.c_str() + b.name) < 0;
  });
  // Two names with one hash: rare, and then their order by name decides.
  for (std::size_t i = 1; i < places_.size(); ++i) {
    places_[i].offset = std::max(places_[i].offset, places_[i - 1].offset + 1);
  }
}

std::size_t Listing::after(std::uint64_t offset) const {
  const auto at =
      std::partition_point(places_.begin(), places_.end(),
                           [offset](const Place& place) { return place.offset <= offset; });
  return static_cast<std::size_t>(at - places_.begin());
}

Result<os::UniqueFd> Overlay::open_upper_directory(Node& dir) {
  if (dir.id == kRootId) {
    os::UniqueFd fd(::fcntl(upper_root_.get(), F_DUPFD_CLOEXEC, 3));
    if (!fd) return Error::from_errno("open directory");
    return fd;
  }
  TRY_ASSIGN(const DirRef path, dirs_->upper(dir));
  return os::open_beneath(path->get(), ".", O_RDONLY | O_DIRECTORY);
}

// The entries of frozen layers that are not in `seen`, which they and what they cover join. Whether
// the visitor wants more.
Result<bool> Overlay::visit_frozen(Node& dir, std::unordered_set<std::string>& seen,
                                   const VisitEntry& visit) {
  if (dir.parts.size() > 1) {
    TRY_ASSIGN(const FrozenDirectory* names, frozen_names(dir));
    for (const auto& [name, frozen] : *names) {
      if (!seen.insert(name).second || S_ISCHR(frozen.type)) continue;
      TRY_ASSIGN(const bool more, visit({name, frozen.type, numbers_.shown(frozen.inode)}));
      if (!more) return false;
    }
    return true;
  }
  for (const std::uint32_t layer : dir.parts) {
    TRY_ASSIGN(const DirRef part, dirs_->frozen(dir, layer));
    TRY_ASSIGN(const DirStream stream, open_stream(part->get(), "."));
    for (;;) {
      TRY_ASSIGN(std::optional<NamedType> entry, next_entry(stream.get()));
      if (!entry) break;
      if (!seen.insert(entry->name).second || S_ISCHR(entry->type)) continue;
      TRY_ASSIGN(const bool more,
                 visit({std::move(entry->name), entry->type, numbers_.shown(entry->inode)}));
      if (!more) return false;
    }
  }
  return true;
}

// Hidden entries are in it, whiteouts and what they cover are not.
Status Overlay::for_each_raw(Node& dir, const VisitEntry& visit) {
  std::unordered_set<std::string> seen;
  if (dir.upper) {
    TRY_ASSIGN(const DirRef upper, dirs_->upper(dir));
    TRY_ASSIGN(const DirStream stream, open_stream(upper->get(), "."));
    for (;;) {
      TRY_ASSIGN(std::optional<NamedType> entry, next_entry(stream.get()));
      if (!entry) break;
      if (dir.stacked()) seen.insert(entry->name);
      // The only devices in upper are whiteouts: nobody can make others.
      if (S_ISCHR(entry->type)) continue;
      TRY_ASSIGN(const bool more,
                 visit({std::move(entry->name), entry->type, numbers_.shown(entry->inode)}));
      if (!more) return {};
    }
  }
  TRY_ASSIGN(const bool more_below, visit_frozen(dir, seen, visit));
  if (!more_below || !dir.merged) return {};
  auto lower = dirs_->lower(dir);
  if (!lower.ok()) {
    const int number = lower.error().error_number();
    if (dir.own() && (number == ENOENT || number == ESTALE || number == ENOTDIR)) return {};
    return lower.error();
  }
  TRY_ASSIGN(const DirStream stream, open_stream((*lower)->get(), "."));
  for (;;) {
    TRY_ASSIGN(std::optional<NamedType> entry, next_entry(stream.get()));
    if (!entry) return {};
    if (seen.contains(entry->name) || has_whiteout_row(dir, entry->name)) continue;
    TRY_ASSIGN(const bool more, visit({std::move(entry->name), entry->type, entry->inode}));
    if (!more) return {};
  }
}

Result<std::vector<ListedEntry>> Overlay::list_raw(Node& dir) {
  std::vector<ListedEntry> out;
  TRY(for_each_raw(dir, [&](ListedEntry&& entry) -> Result<bool> {
    out.push_back(std::move(entry));
    return true;
  }));
  return out;
}

Status Overlay::list_again(OpenDir& dir) {
  Node& node = *dir.node;
  listed_bytes_ -= dir.entries.bytes();
  dir.entries.clear();
  dir.listed = true;
  Listing listing;
  listing.add({".", S_IFDIR, node.shown_inode});
  const Node& above = node.names.empty() ? node : *node.names.front().parent;
  listing.add({"..", S_IFDIR, above.shown_inode});
  if (attached(node)) {
    const std::string path = nodes_.path(node);
    TRY(for_each_raw(node, [&](ListedEntry&& entry) -> Result<bool> {
      if (options_.rules.empty() ||
          options_.rules.decide(NodeTable::child_path(path, entry.name), S_ISDIR(entry.type))
              .visible()) {
        listing.add(entry);
      }
      if (listed_bytes_ + listing.bytes() <= options_.max_listed_bytes) return true;
      return Error::from_errno("too much is listed at once", ENOMEM);
    }));
  }
  listing.sort();
  dir.entries = std::move(listing);
  listed_bytes_ += dir.entries.bytes();
  return {};
}

Result<OpenDir*> Overlay::open_directory(NodeId id) {
  Node* node = nodes_.find(id);
  if (node == nullptr) return Error::from_errno("opendir", ESTALE);
  if (!node->is_dir()) return Error::from_errno("opendir", ENOTDIR);
  // They hold no descriptor; max_listed_bytes bounds what is in them.
  if (listings_.size() >= options_.max_open) return Error::from_errno("opendir", ENFILE);
  auto owned = std::make_unique<OpenDir>();
  OpenDir* dir = owned.get();
  dir->node = node;
  if (attached(*node)) watch_lower(*node);
  ++node->pins;
  listings_.emplace(dir, std::move(owned));
  return dir;
}

void Overlay::close(OpenDir* dir) {
  Node* node = dir->node;
  listed_bytes_ -= dir->entries.bytes();
  listings_.erase(dir);
  --node->pins;
  nodes_.release(node);
}

Status Overlay::sync_directory(NodeId id) {
  Node* node = nodes_.find(id);
  if (node == nullptr || !node->upper || !attached(*node)) return {};
  if (meta_) TRY(meta_->sync());
  TRY_ASSIGN(const os::UniqueFd fd, open_upper_directory(*node));
  if (::fsync(fd.get()) != 0) return Error::from_errno("fsync");
  return {};
}

}  // namespace cofferdam::overlay
