#include "orchestrator/changes/collector.h"

#include <fcntl.h>

#include <algorithm>
#include <map>

#include "common/layer/user_attributes.h"
#include "common/os/tree_paths.h"
#include "orchestrator/changes/bulk_tree.h"

namespace cofferdam::orchestrator::changes {
namespace {

constexpr std::size_t kMaxPathBytes = 512U << 20U;
// For all files together.
constexpr std::uint64_t kMaxHoles = std::uint64_t{8} << 30U;
constexpr std::uint32_t kSetIdBits = 06000;

ObjectState state_of(const layer::BaseRecord& record) {
  ObjectState state;
  state.kind = record.version.kind;
  if (state.absent()) return state;
  if (state.kind != layer::Kind::kSymlink) state.mode = record.version.mode & 07777U;
  if (state.kind != layer::Kind::kDirectory) state.size = record.version.size;
  state.sha256 = record.sha256;
  return state;
}

bool has_content(layer::Kind kind) {
  return kind == layer::Kind::kFile || kind == layer::Kind::kSymlink;
}

ChangeKind kind_of(const ObjectState& base, const ObjectState& theirs) {
  if (base.absent()) return ChangeKind::kAdded;
  if (theirs.absent()) return ChangeKind::kDeleted;
  if (base.kind != theirs.kind) return ChangeKind::kType;
  if (theirs.kind == layer::Kind::kSymlink) return ChangeKind::kSymlink;
  if (theirs.kind == layer::Kind::kFile && base.sha256 != theirs.sha256)
    return ChangeKind::kModified;
  return ChangeKind::kMode;
}

Omission omission_of(const std::string& path, const UpperEntry& entry) {
  if (path.size() > os::kMaxTreePath) {
    return {path, "path_too_long", "longer than a path may be; what lies below it is left out too",
            1};
  }
  return {path, "unreadable", entry.problem, 1};
}

using Attributes = std::map<std::string, std::string>;

Result<Attributes> attributes_in(int root, const std::string& path) {
  TRY_ASSIGN(const os::UniqueFd fd, os::open_in_tree(root, path, O_RDONLY));
  TRY_ASSIGN(const std::vector<std::string> names, layer::user_attributes(fd.get()));
  Attributes out;
  for (const std::string& name : names) {
    TRY_ASSIGN(out[name], layer::attribute_value(fd.get(), name));
  }
  return out;
}

}  // namespace

Status Collector::grow(std::size_t bytes) {
  bytes_ += bytes;
  if (++entries_ > kMaxChanges || bytes_ > kMaxPathBytes) {
    return Error("more than " + std::to_string(kMaxChanges) +
                 " changed paths: too many to review; ignore what is generated "
                 "(.gitignore of the repository) and try again");
  }
  return {};
}

Result<Visit> Collector::visit_upper(const std::string& path, const UpperEntry& entry) {
  bool is_dir = entry.kind == layer::Kind::kDirectory;
  if (entry.whiteout) {
    TRY_ASSIGN(const auto record, view_.meta().base(path));
    is_dir = record.has_value() && record->version.kind == layer::Kind::kDirectory;
  }
  if (Top* top = placement_.top_of(path, is_dir); top != nullptr) {
    TreeSize size{1, entry.kind == layer::Kind::kFile ? entry.size : 0};
    if (entry.kind == layer::Kind::kDirectory && entry.problem.empty()) {
      TRY_ASSIGN(size, measure_upper(view_.upper(), path));
    }
    top->entries += size.entries;
    top->bytes += size.bytes;
    top->removed = entry.whiteout;
    top->measured = !entry.whiteout;
    return Visit::kSkip;
  }
  TRY(grow(path.size()));
  if (entry.kind == layer::Kind::kDirectory && placement_.is_admitted(path)) {
    TRY_ASSIGN(const bool whole, take_bulk(path, entry));
    if (whole) return Visit::kSkip;
  }
  upper_.emplace(path, entry);
  return Visit::kEnter;
}

// A directory of ignored content that neither side had before.
Result<bool> Collector::take_bulk(const std::string& path, const UpperEntry& entry) {
  // With frozen layers it may lie in more places than one.
  const auto root = view_.upper().sole_root_of(path);
  if (!entry.problem.empty() || !root) return false;
  TRY_ASSIGN(const auto record, view_.meta().base(path));
  const bool had = record.has_value() && (record->version.kind != layer::Kind::kAbsent ||
                                          record->state != layer::BaseState::kKnown);
  if (had || criteria_.settled.paths.contains(path)) return false;
  const auto parent = os::open_parent_in_tree(view_.workspace(), path);
  if (parent.ok() && os::stat_in(parent->get(), os::leaf_of(path)).ok()) return false;
  TRY_ASSIGN(const auto tree, look_through(*root, path, criteria_.risks, criteria_.secrets,
                                           [&](const std::string& below, bool is_dir) {
                                             return placement_.is_hidden(below, is_dir);
                                           }));
  if (!tree.has_value() || !affords_holes(tree->holes)) return false;
  Change change;
  change.path = path;
  change.kind = ChangeKind::kAdded;
  change.theirs.kind = entry.kind;
  change.theirs.mode = entry.mode;
  change.bulk_entries = tree->entries;
  change.bulk_bytes = tree->bytes;
  restrict_mode(change);
  change.risk = tree->risk;
  if (tree->risky > 0 && change.risk.level != RiskLevel::kNone) {
    change.risk.reason = std::to_string(tree->risky) + " in it, such as " + tree->risky_path +
                         ": " + tree->risk.reason;
  }
  if (tree->secrets > 0) {
    change.secret = tree->secret;
    if (tree->secrets > 1) {
      change.secret += " and " + std::to_string(tree->secrets - 1) + " more";
    }
    mark_secret(change, "it holds " + change.secret + " (" + tree->secret_path + ")");
  }
  set_.changes.push_back(std::move(change));
  bulk_.push_back(path);
  return true;
}

Status Collector::take_upper() {
  TRY(walk_upper(view_.upper(), [&](const std::string& path, const UpperEntry& entry) {
    return visit_upper(path, entry);
  }));
  return take_whiteout_rows();
}

Status Collector::take_whiteout_rows() {
  TRY_ASSIGN(const auto paths, view_.meta().whiteouts());
  for (const std::string& path : paths) {
    if (!os::is_tree_path(path) || path.empty() || upper_.contains(path)) continue;
    UpperEntry entry;
    entry.whiteout = true;
    TRY_ASSIGN(const Visit ignored, visit_upper(path, entry));
    (void)ignored;
  }
  return {};
}

Collector::Absent Collector::without_upper(std::string_view path) const {
  while (!path.empty()) {
    path = os::parent_of(path);
    const auto found = upper_.find(std::string(path));
    if (found == upper_.end()) continue;
    const UpperEntry& above = found->second;
    const bool shows_through =
        !above.whiteout && above.kind == layer::Kind::kDirectory && !above.detached;
    return shows_through ? Absent::kUntouched : Absent::kRemoved;
  }
  return Absent::kUntouched;
}

bool Collector::was_absent(std::string_view path) const {
  while (!path.empty()) {
    path = os::parent_of(path);
    const std::string above(path);
    if (new_directories_.contains(above)) return true;
    const auto found = upper_.find(above);
    // A detached directory's lower objects were all recorded when it came to be.
    if (found != upper_.end() && found->second.detached) return true;
  }
  return false;
}

Result<ObjectState> Collector::theirs(const std::string& path, const UpperEntry& entry,
                                      Secrets& secrets) const {
  ObjectState state;
  state.kind = entry.kind;
  if (entry.kind != layer::Kind::kSymlink) state.mode = entry.mode;
  if (!has_content(entry.kind)) return state;
  Sha256 hash;
  secrets::SecretSearch search = secrets::search_into(criteria_.secrets, secrets);
  TRY(view_.read_theirs(path, [&](std::string_view bytes) -> Status {
    hash.update(bytes);
    search.feed(bytes);
    state.size += bytes.size();
    return {};
  }));
  search.finish();
  state.sha256 = hash.finish();
  return state;
}

void Collector::judge_secrets(Change& change, Secrets secrets) const {
  if (!secrets.empty() && has_content(change.base.kind)) {
    Secrets before;
    secrets::SecretSearch search = secrets::search_into(criteria_.secrets, before);
    const Status read = view_.read_base(change.path, change.base, [&](std::string_view bytes) {
      search.feed(bytes);
      return Status();
    });
    search.finish();
    // What cannot be read is not known to have held it.
    if (read.ok()) secrets::forget_known(secrets, before);
  }
  secrets::SecretSearch name = secrets::search_into(criteria_.secrets, secrets);
  name.feed(change.path);
  name.finish();
  if (secrets.empty() || change.theirs.absent()) return;
  change.secret = secrets.begin()->second;
  if (secrets.size() > 1) change.secret += " and " + std::to_string(secrets.size() - 1) + " more";
  mark_secret(change, "it holds " + change.secret);
}

void Collector::mark_secret(Change& change, const std::string& reason) {
  if (change.risk.level == RiskLevel::kNeedsAllowance) {
    change.risk.reason += "; " + reason;
  } else {
    change.risk = {RiskLevel::kNeedsAllowance, "secret", reason};
  }
}

// A file's size costs the sandbox nothing where nothing is stored; reading it costs us.
bool Collector::affords_holes(std::uint64_t holes) {
  if (holes > kMaxHoles - holes_) return false;
  holes_ += holes;
  return true;
}

void Collector::restrict_mode(Change& change) const {
  const bool same_kind = change.base.kind == change.theirs.kind;
  // The bits of a file speak for its content, as the kernel sees it too: a write takes them away.
  const bool vouched = same_kind && change.base.sha256 == change.theirs.sha256;
  const std::uint32_t dropped =
      change.theirs.mode & kSetIdBits & ~(vouched ? change.base.mode : 0U);
  // Permissions that the user's own umask keeps from new files come from a sandbox neither.
  const std::uint32_t masked =
      change.theirs.mode & criteria_.umask & ~(same_kind ? change.base.mode : 0U);
  change.theirs.mode &= ~(dropped | masked);
  change.dropped_set_id = dropped != 0 && change.theirs.kind == layer::Kind::kFile;
}

Status Collector::judge(const std::string& path, const layer::BaseRecord* record,
                        const UpperEntry* entry) {
  Change change;
  change.path = path;
  Secrets secrets;
  if (record != nullptr) {
    change.base = state_of(*record);
    change.base_known = record->state == layer::BaseState::kKnown;
  } else {
    change.base_known = was_absent(path);
  }
  if (has_content(change.base.kind) && !change.base.sha256.has_value()) change.base_known = false;
  const auto before = criteria_.settled.paths.find(path);
  if (before != criteria_.settled.paths.end()) {
    change.base = before->second;
    change.base_known = true;
  }

  if (entry != nullptr && !entry->whiteout) {
    if (!entry->problem.empty()) {
      set_.omissions.push_back(omission_of(path, *entry));
      return {};
    }
    if (entry->kind == layer::Kind::kOther) {
      set_.omissions.push_back({path, "special_file", "a FIFO, socket or device stays behind", 1});
      return {};
    }
    if (entry->kind == layer::Kind::kFile && !affords_holes(entry->holes)) {
      set_.omissions.push_back({path, "mostly_holes",
                                std::to_string(entry->size) + " bytes, of which " +
                                    std::to_string(entry->holes) +
                                    " are stored nowhere: reading them all would take for ever",
                                1});
      return {};
    }
    auto made = theirs(path, *entry, secrets);
    if (!made.ok()) {
      set_.omissions.push_back({path, "unreadable", made.error().message(), 1});
      return {};
    }
    change.theirs = std::move(made).value();
  }
  restrict_mode(change);

  if (change.base_known && change.theirs.same_as(change.base)) {
    if (before != criteria_.settled.paths.end()) ++set_.settled;
    return {};
  }
  if (change.base.kind == layer::Kind::kOther) {
    set_.omissions.push_back({path, "special_file", "a FIFO, socket or device is left alone", 1});
    return {};
  }
  change.kind = kind_of(change.base, change.theirs);
  std::string link;
  if (change.theirs.kind == layer::Kind::kSymlink) {
    TRY(view_.read_theirs(path, [&](std::string_view bytes) -> Status {
      link += bytes;
      return {};
    }));
  }
  change.risk = criteria_.risks.assess(change, link);
  judge_secrets(change, std::move(secrets));
  set_.changes.push_back(std::move(change));
  return {};
}

Status Collector::take_base(const layer::BaseRecord& record) {
  // The workspace's own directory is no path in it.
  if (record.path.empty()) return {};
  if (!os::is_tree_path(record.path)) {
    set_.omissions.push_back({record.path, "path_too_long", "not a path that can be merged", 1});
    return {};
  }
  if (!bulk_.empty() && is_selected(record.path, bulk_)) return {};
  const bool is_dir = record.version.kind == layer::Kind::kDirectory;
  const auto found = upper_.find(record.path);
  if (found == upper_.end()) {
    if (Top* top = placement_.top_of(record.path, is_dir); top != nullptr) {
      const bool gone =
          top->removed || (!top->measured && record.version.kind != layer::Kind::kAbsent &&
                           without_upper(record.path) == Absent::kRemoved);
      if (gone) ++top->entries;
      return {};
    }
    if (without_upper(record.path) == Absent::kUntouched) return {};
    TRY(grow(record.path.size()));
    return judge(record.path, &record, nullptr);
  }
  with_base_.insert(record.path);
  if (!is_dir && !found->second.whiteout && found->second.kind == layer::Kind::kDirectory) {
    new_directories_.insert(record.path);
  }
  return judge(record.path, &record, &found->second);
}

Status Collector::take_without_base(const std::string& path, const UpperEntry& entry) {
  return judge(path, nullptr, &entry);
}

// A patch holds none, and a merge gives none. What the workspace has already is not left behind.
void Collector::report_attributes() {
  for (const auto& one : upper_) {
    const std::string& path = one.first;
    const UpperEntry& entry = one.second;
    const bool has = entry.kind == layer::Kind::kFile || entry.kind == layer::Kind::kDirectory;
    if (!has || entry.whiteout || !entry.problem.empty() || path.empty()) continue;
    const auto theirs = [&]() {
      const auto parent = view_.upper().parent_of(path);
      if (!parent.ok()) return Result<Attributes>(parent.error());
      return attributes_in(parent->get(), std::string(os::leaf_of(path)));
    }();
    if (!theirs.ok()) {
      set_.omissions.push_back({path, "xattr", "its extended attributes cannot be read", 1});
      continue;
    }
    const auto ours = attributes_in(view_.workspace(), path);
    // What is new has none there; what the workload took away stays there.
    if (ours.ok() ? *theirs == *ours : theirs->empty()) continue;
    set_.omissions.push_back({path, "xattr",
                              theirs->empty()
                                  ? "its extended attributes stay as they are"
                                  : std::to_string(theirs->size()) +
                                        (theirs->size() == 1 ? " extended attribute stays"
                                                             : " extended attributes stay") +
                                        " behind",
                              1});
  }
}

void Collector::report_tops() {
  for (const auto& [path, top] : placement_.tops()) {
    if (top.entries == 0) continue;
    switch (top.place) {
      case Place::kPlain:
        break;
      case Place::kIgnored:
        set_.ignored.push_back({path, top.entries, top.bytes});
        break;
      case Place::kReserved:
        set_.omissions.push_back(
            {path, "reserved", "a name that only a merge itself gives", top.entries});
        break;
      case Place::kHidden:
        set_.omissions.push_back({path, "hidden", "hidden by rule " + top.detail, top.entries});
        break;
      case Place::kGitDirectory:
        set_.omissions.push_back(
            {path, "git_directory",
             path == ".git" ? "no byte of it is taken home; its commits are, by merge --commits"
                            : "nothing of a git directory is taken home",
             top.entries});
        break;
    }
  }
}

Result<ChangeSet> Collector::collect() {
  TRY(take_upper());
  TRY(view_.meta().for_each_base(
      "", [&](const layer::BaseRecord& record) { return take_base(record); }));
  for (const auto& [path, entry] : upper_) {
    if (!with_base_.contains(path)) TRY(take_without_base(path, entry));
  }
  TRY(placement_.check());
  report_tops();
  if (placement_.has_attributes()) report_attributes();
  const auto by_path = [](const auto& a, const auto& b) { return a.path < b.path; };
  std::sort(set_.changes.begin(), set_.changes.end(), by_path);
  std::sort(set_.omissions.begin(), set_.omissions.end(), by_path);
  std::sort(set_.ignored.begin(), set_.ignored.end(), by_path);
  return std::move(set_);
}

}  // namespace cofferdam::orchestrator::changes
