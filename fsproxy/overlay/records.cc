#include "fsproxy/overlay/records.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <vector>

#include "common/os/files.h"

namespace cofferdam::overlay {

using layer::BaseState;
using layer::Kind;
using layer::Version;

namespace {

std::int64_t now_ns() {
  struct timespec now {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return to_ns(now);
}

// The same object in the same version.
bool same_version(const Version& a, const Version& b) {
  return a.kind == b.kind && a.size == b.size && a.mtime_ns == b.mtime_ns &&
         a.ctime_ns == b.ctime_ns && a.inode == b.inode && a.device == b.device;
}

}  // namespace

Records::Records(layer::MetaStore* meta, BaseStore store, std::uint64_t rows)
    : meta_(meta), store_(std::move(store)), rows_(rows) {}

void Records::note_read(std::string path, const Version& version) {
  if (active()) reads_.emplace(std::move(path), version);
}

Status Records::flush_reads() {
  if (reads_.empty()) return {};
  if (!in_batch_) TRY(meta_->begin());
  Status result;
  for (const auto& [path, version] : reads_) {
    result = meta_->record_read({path, version});
    if (!result.ok()) break;
  }
  if (!in_batch_) TRY(meta_->commit());
  if (result.ok()) reads_.clear();
  return result;
}

Status Records::begin() {
  if (!active()) return {};
  TRY(meta_->begin());
  in_batch_ = true;
  return {};
}

Status Records::commit() {
  if (!in_batch_) return {};
  in_batch_ = false;
  return meta_->commit();
}

Status Records::take_content(PendingBase& base, int dir_fd, const std::string& name,
                             LowerStat& st) {
  constexpr int kAttempts = 3;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    auto opened = open_lower(dir_fd, name, st.identity);
    if (!opened.ok()) {
      // Not readable for us: nothing is known of its content.
      base.record.state = BaseState::kUnknown;
      return {};
    }
    Sha256 hash;
    const bool keep = st.st.st_size <= static_cast<off_t>(kStoreLimit);
    std::string content;
    if (keep) content.reserve(static_cast<std::size_t>(st.st.st_size));
    std::vector<char> buffer(256 * 1024);
    bool failed = false;
    for (;;) {
      const ssize_t got = ::read(opened->get(), buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) failed = true;
      if (got <= 0) break;
      const std::string_view piece(buffer.data(), static_cast<std::size_t>(got));
      hash.update(piece);
      if (keep && content.size() <= kStoreLimit) content.append(piece);
    }
    const auto after = stat_lower(opened->get(), "");
    if (failed || !after.ok()) break;
    base.record.version = version_of(after->st);
    const bool same = same_version(version_of(st.st), base.record.version);
    st = *after;
    if (!same) continue;
    base.record.sha256 = hash.finish();
    if (keep && content.size() <= kStoreLimit) {
      TRY_ASSIGN(base.record.stored, store_.put(*base.record.sha256, content));
      base.content = std::move(content);
    }
    return {};
  }
  base.record.state = BaseState::kUnknown;
  return {};
}

Result<BaseState> Records::state_of(const std::string& path, const Version& version,
                                    layer::BaseRecord& record) {
  TRY_ASSIGN(const auto read, meta_->read(path));
  if (read && !same_version(read->version, version)) {
    // The workload worked from another version than the one that is there now.
    record.version = read->version;
    record.sha256.reset();
    record.stored = false;
    return BaseState::kUnknown;
  }
  const bool changed_since_start =
      version.kind != Kind::kDirectory && version.ctime_ns > meta_->start_ns() - kTicksNs;
  if (changed_since_start && !read) return BaseState::kUnknown;
  return BaseState::kKnown;
}

Result<PendingBase> Records::take(std::string path, int dir_fd, const std::string& name,
                                  const Hashed* known) {
  PendingBase base;
  base.record.path = std::move(path);
  base.record.state = BaseState::kKnown;
  base.already_recorded = true;
  if (!active()) return base;
  TRY_ASSIGN(const auto existing, meta_->base(base.record.path));
  if (existing) return base;
  base.already_recorded = false;
  if (dir_fd < 0) return base;
  auto found = stat_lower(dir_fd, name);
  if (!found.ok()) {
    if (found.error().error_number() == ENOENT) return base;
    return found.error();
  }
  LowerStat st = *found;
  base.record.version = version_of(st.st);
  if (known != nullptr && same_version(known->version, base.record.version)) {
    base.record.sha256 = known->sha256;
  } else if (base.record.version.kind == Kind::kFile) {
    TRY(take_content(base, dir_fd, name, st));
  } else if (base.record.version.kind == Kind::kSymlink) {
    TRY_ASSIGN(const std::string target, read_link(dir_fd, name));
    base.record.sha256 = sha256(target);
    TRY_ASSIGN(base.record.stored, store_.put(*base.record.sha256, target));
  }
  return base;
}

Status Records::write(PendingBase& base, const std::optional<Version>& now) {
  if (base.already_recorded) return {};
  layer::BaseRecord& record = base.record;
  if (record.version.kind != Kind::kAbsent) {
    TRY(flush_reads());
    record.racy = record.version.ctime_ns > now_ns() - kTicksNs;
    if (now && !same_version(*now, record.version)) record.state = BaseState::kUnknown;
    if (record.state == BaseState::kKnown) {
      TRY_ASSIGN(record.state, state_of(record.path, record.version, record));
    }
  }
  base.already_recorded = true;
  return insert(record);
}

Status Records::insert(const layer::BaseRecord& record) {
  TRY_ASSIGN(const bool added, meta_->record_base(record));
  if (added) ++rows_;
  return {};
}

Status Records::record(const std::string& path, int dir_fd, const std::string& name) {
  if (!active()) return {};
  // One transaction for the questions and the answer: half of the cost is in beginning and ending
  // them.
  const bool own = !in_batch_;
  if (own) TRY(begin());
  const Status recorded = [&]() -> Status {
    TRY_ASSIGN(PendingBase base, take(path, dir_fd, name));
    return write(base, std::nullopt);
  }();
  if (own) {
    const Status committed = commit();
    if (recorded.ok()) return committed;
  }
  return recorded;
}

Status Records::record_absent(const std::string& path) {
  if (!active()) return {};
  layer::BaseRecord record;
  record.path = path;
  record.state = BaseState::kKnown;
  return insert(record);
}

}  // namespace cofferdam::overlay
