#include "orchestrator/changes/stale_reads.h"

#include <sys/stat.h>

#include <cstdint>
#include <string_view>
#include <unordered_set>

#include "common/os/tree_paths.h"

namespace cofferdam::orchestrator::changes {
namespace {

std::int64_t nanoseconds(const struct timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Empty when the workspace still holds this version.
std::string difference(const layer::Version& read, const Result<struct stat>& now) {
  if (!now.ok()) return "it is gone";
  if (kind_of_mode(now->st_mode) != read.kind) return "it is something else now";
  if (static_cast<std::uint64_t>(now->st_size) != read.size) return "its size changed";
  if (now->st_ino != read.inode) return "it was replaced";
  if (nanoseconds(now->st_mtim) != read.mtime_ns) return "its content changed";
  if ((now->st_mode & 07777U) != read.mode) return "its mode changed";
  if (nanoseconds(now->st_ctim) != read.ctime_ns) return "it was touched";
  return {};
}

}  // namespace

Result<std::vector<StaleRead>> find_stale_reads(const ReviewSession& session, Placement& placement,
                                                const ChangeSet& set) {
  const LayerView& view = session.view;
  std::unordered_set<std::string_view> changed;
  for (const Change& change : set.changes) changed.insert(change.path);
  std::vector<StaleRead> stale;
  TRY(view.meta().for_each_read([&](const layer::ReadRecord& record) -> Status {
    if (record.path.empty() || !os::is_tree_path(record.path)) return {};
    if (record.version.kind == layer::Kind::kDirectory) return {};
    if (changed.contains(record.path) || session.settled.paths.contains(record.path)) return {};
    const Top* top = placement.top_of(record.path, false);
    if (top != nullptr && top->place != Place::kIgnored) return {};
    const auto parent = os::open_parent_in_tree(view.workspace(), record.path);
    const auto now = parent.ok() ? os::stat_in(parent->get(), os::leaf_of(record.path))
                                 : Result<struct stat>(parent.error());
    std::string why = difference(record.version, now);
    if (!why.empty()) stale.push_back({record.path, std::move(why)});
    return {};
  }));
  TRY(placement.check());
  return stale;
}

}  // namespace cofferdam::orchestrator::changes
