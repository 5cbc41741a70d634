// Directory listings: a snapshot of the merged entries, taken at opendir.
#include <fcntl.h>
#include <unistd.h>

#include <unordered_set>

#include "common/os/beneath.h"
#include "fsproxy/overlay/overlay.h"
#include "fsproxy/overlay/tree_walk.h"

namespace cofferdam::overlay {

Result<os::UniqueFd> Overlay::open_upper_directory(Node& dir) {
  if (dir.id == kRootId) {
    os::UniqueFd fd(::fcntl(upper_root_.get(), F_DUPFD_CLOEXEC, 3));
    if (!fd) return Error::from_errno("open directory");
    return fd;
  }
  TRY_ASSIGN(const DirRef path, dirs_->upper(dir));
  return os::open_beneath(path->get(), ".", O_RDONLY | O_DIRECTORY);
}

// Hidden entries are in it, whiteouts and what they cover are not.
Result<std::vector<Overlay::RawEntry>> Overlay::list_raw(Node& dir) {
  std::vector<RawEntry> out;
  std::unordered_set<std::string> seen;
  if (dir.upper) {
    TRY_ASSIGN(const DirRef upper, dirs_->upper(dir));
    TRY_ASSIGN(const DirStream stream, open_stream(upper->get(), "."));
    for (;;) {
      TRY_ASSIGN(std::optional<NamedType> entry, next_entry(stream.get()));
      if (!entry) break;
      if (dir.merged) seen.insert(entry->name);
      // The only devices in upper are whiteouts: nobody can make others.
      if (S_ISCHR(entry->type)) continue;
      out.push_back({std::move(entry->name), entry->type, numbers_.shown(entry->inode)});
    }
  }
  if (!dir.merged) return out;
  auto lower = dirs_->lower(dir);
  if (!lower.ok()) {
    const int number = lower.error().error_number();
    if (dir.upper && (number == ENOENT || number == ESTALE || number == ENOTDIR)) return out;
    return lower.error();
  }
  TRY_ASSIGN(const DirStream stream, open_stream((*lower)->get(), "."));
  for (;;) {
    TRY_ASSIGN(std::optional<NamedType> entry, next_entry(stream.get()));
    if (!entry) break;
    if (seen.contains(entry->name) || has_whiteout_row(dir, entry->name)) continue;
    out.push_back({std::move(entry->name), entry->type, entry->inode});
  }
  return out;
}

Status Overlay::list_again(OpenDir& dir) {
  Node& node = *dir.node;
  dir.entries.clear();
  dir.entries.push_back({".", S_IFDIR, node.shown_inode});
  const Node& above = node.names.empty() ? node : *node.names.front().parent;
  dir.entries.push_back({"..", S_IFDIR, above.shown_inode});
  if (!attached(node)) return {};
  TRY_ASSIGN(std::vector<RawEntry> entries, list_raw(node));
  const std::string path = nodes_.path(node);
  dir.entries.reserve(entries.size() + 2);
  for (RawEntry& entry : entries) {
    if (!options_.rules.empty() &&
        !options_.rules.decide(NodeTable::child_path(path, entry.name), S_ISDIR(entry.type))
             .visible()) {
      continue;
    }
    dir.entries.push_back({std::move(entry.name), entry.type, entry.shown_inode});
  }
  return {};
}

Result<OpenDir*> Overlay::open_directory(NodeId id) {
  Node* node = nodes_.find(id);
  if (node == nullptr) return Error::from_errno("opendir", ESTALE);
  if (!node->is_dir()) return Error::from_errno("opendir", ENOTDIR);
  if (files_.size() + listings_.size() >= options_.max_open)
    return Error::from_errno("opendir", ENFILE);
  auto owned = std::make_unique<OpenDir>();
  OpenDir* dir = owned.get();
  dir->node = node;
  TRY(list_again(*dir));
  ++node->pins;
  listings_.emplace(dir, std::move(owned));
  return dir;
}

void Overlay::close(OpenDir* dir) {
  Node* node = dir->node;
  listings_.erase(dir);
  --node->pins;
  nodes_.release(node);
}

Status Overlay::sync_directory(NodeId id) {
  Node* node = nodes_.find(id);
  if (node == nullptr || !node->upper || !attached(*node)) return {};
  TRY_ASSIGN(const os::UniqueFd fd, open_upper_directory(*node));
  if (::fsync(fd.get()) != 0) return Error::from_errno("fsync");
  return {};
}

}  // namespace cofferdam::overlay
