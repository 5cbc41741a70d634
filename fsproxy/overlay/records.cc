#include "fsproxy/overlay/records.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

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
  constexpr std::size_t kPiece = 256 * 1024;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    auto opened = open_lower(dir_fd, name, st.identity, LowerKind::kKnown);
    if (!opened.ok()) {
      // Not readable for us: nothing is known of its content.
      base.record.state = BaseState::kUnknown;
      return {};
    }
    const auto size = static_cast<std::size_t>(st.st.st_size);
    const bool keep = size <= kStoreLimit;
    Sha256 hash;
    std::string content;
    std::uint64_t seen = 0;
    bool failed = false;
    for (;;) {
      // One more than there is, so that the first piece of a file that is kept is all of it.
      const std::size_t begin = keep ? content.size() : 0;
      const std::size_t room = keep ? size + 1 - std::min(size, begin) : kPiece;
      content.resize(begin + room);
      const ssize_t got = ::read(opened->fd.get(), content.data() + begin, room);
      if (got < 0 && errno == EINTR) {
        content.resize(begin);
        continue;
      }
      if (got < 0) failed = true;
      const auto added = static_cast<std::size_t>(std::max<ssize_t>(got, 0));
      content.resize(begin + added);
      seen += added;
      if (!keep && added > 0) hash.update(content);
      // It grew: read again, in vain if need be.
      if (added == 0 || (keep && (added < room || seen > size))) break;
    }
    const auto after = stat_lower(opened->fd.get(), "");
    if (failed || !after.ok()) break;
    base.record.version = version_of(after->st);
    const bool same = same_version(version_of(st.st), base.record.version) && seen == size;
    st = *after;
    if (!same) continue;
    if (keep) {
      hash.update(content);
      base.content = std::move(content);
    }
    base.record.sha256 = hash.finish();
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
    return BaseState::kUnknown;
  }
  const bool changed_since_start =
      version.kind != Kind::kDirectory && version.ctime_ns > meta_->start_ns() - kTicksNs;
  if (changed_since_start && !read) return BaseState::kUnknown;
  return BaseState::kKnown;
}

Result<PendingBase> Records::take(std::string path, int dir_fd, const std::string& name,
                                  const LowerStat& now, const Hashed* known) {
  PendingBase base;
  base.record.path = std::move(path);
  base.record.state = BaseState::kKnown;
  base.already_recorded = true;
  if (!active()) return base;
  TRY_ASSIGN(const auto existing, meta_->base(base.record.path));
  if (existing) return base;
  base.already_recorded = false;
  LowerStat st = now;
  base.record.version = version_of(st.st);
  if (known != nullptr && same_version(known->version, base.record.version)) {
    base.record.sha256 = known->sha256;
  } else if (base.record.version.kind == Kind::kFile) {
    TRY(take_content(base, dir_fd, name, st));
  } else if (base.record.version.kind == Kind::kSymlink) {
    TRY_ASSIGN(std::string target, read_link(dir_fd, name));
    base.record.sha256 = sha256(target);
    base.content = std::move(target);
  }
  return base;
}

Status Records::write(PendingBase& base, const std::optional<Version>& now) {
  if (base.already_recorded) return {};
  layer::BaseRecord& record = base.record;
  // What was read and this go out together.
  if (!in_batch_ && has_unwritten_reads()) {
    TRY(begin());
    const Status written = write(base, now);
    const Status committed = commit();
    return written.ok() ? committed : written;
  }
  if (record.version.kind != Kind::kAbsent) {
    TRY(flush_reads());
    record.racy = record.version.ctime_ns > now_ns() - kTicksNs;
    if (now && !same_version(*now, record.version)) record.state = BaseState::kUnknown;
    if (record.state == BaseState::kKnown) {
      TRY_ASSIGN(record.state, state_of(record.path, record.version, record));
    }
  }
  base.already_recorded = true;
  return insert(base);
}

Status Records::insert(PendingBase& base) {
  layer::BaseRecord& record = base.record;
  const std::uint64_t bytes = base.content ? base.content->size() : 0;
  record.stored = base.content && record.sha256 && (bytes == 0 || ledger_->reserve(bytes, 0));
  if (record.stored) {
    const auto added = meta_->record_base(record, *base.content);
    if (added.ok() && *added) return {};
    ledger_->add(-static_cast<std::int64_t>(bytes), 0);
    if (added.ok()) return {};
    const int number = added.error().error_number();
    if (number != ENOSPC && number != EDQUOT) return added.error();
    record.stored = false;
  }
  TRY(meta_->record_base(record));
  return {};
}

Status Records::record(const std::string& path, int dir_fd, const std::string& name,
                       const LowerStat& now) {
  if (!active()) return {};
  TRY_ASSIGN(PendingBase base, take(path, dir_fd, name, now));
  return write(base, std::nullopt);
}

Status Records::record_absent(const std::string& path) {
  if (!active()) return {};
  PendingBase base;
  base.record.path = path;
  base.record.state = BaseState::kKnown;
  return insert(base);
}

}  // namespace cofferdam::overlay
