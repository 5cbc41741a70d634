#include "common/layer/record_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "common/os/files.h"

namespace cofferdam::layer {
namespace {

static_assert(std::endian::native == std::endian::little, "the log is little endian");

// The log begins with it; the last digit is the format of what follows.
constexpr std::string_view kMagic("cofferdam-log-1\n", 16);
constexpr std::size_t kMaxPath = 1U << 20U;
// Beyond what any writer keeps: what claims more is damaged.
constexpr std::uint64_t kMaxContent = 1U << 26U;
constexpr std::size_t kMaxWaiting = 1U << 20U;

constexpr std::uint8_t kUnknown = 1;
constexpr std::uint8_t kStored = 2;
constexpr std::uint8_t kRacy = 4;
constexpr std::uint8_t kHashed = 8;

// What stands before the path and the content. No padding.
struct Head {
  std::uint32_t path_size = 0;
  std::uint32_t check = 0;  // CRC-32 of the rest of the head and of the path
  std::uint64_t content_size = 0;
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;
  std::uint64_t inode = 0;
  std::uint64_t device = 0;
  std::uint32_t mode = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint8_t what = 0;  // 'B' base, 'R' read
  std::uint8_t kind = 0;
  std::uint8_t flags = 0;
  std::uint8_t none = 0;
  std::array<std::uint8_t, 32> sha256{};
};
static_assert(sizeof(Head) == 104);

// CRC-32 as of IEEE 802.3.
std::uint32_t crc32(std::uint32_t state, std::string_view bytes) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> out{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value >> 1U) ^ ((value & 1U) * 0xedb88320U);
      out[i] = value;
    }
    return out;
  }();
  state = ~state;
  for (const char c : bytes)
    state = table[(state ^ static_cast<std::uint8_t>(c)) & 255U] ^ (state >> 8U);
  return ~state;
}

std::uint32_t check_of(const Head& head, std::string_view path) {
  const std::string_view bytes(reinterpret_cast<const char*>(&head), sizeof head);
  return crc32(crc32(head.path_size, bytes.substr(offsetof(Head, content_size))), path);
}

Head head_of(const BaseRecord& record, std::uint8_t what, std::size_t content_size) {
  Head head;
  head.path_size = static_cast<std::uint32_t>(record.path.size());
  head.content_size = content_size;
  head.size = record.version.size;
  head.mtime_ns = record.version.mtime_ns;
  head.ctime_ns = record.version.ctime_ns;
  head.inode = record.version.inode;
  head.device = record.version.device;
  head.mode = record.version.mode;
  head.uid = record.version.uid;
  head.gid = record.version.gid;
  head.what = what;
  head.kind = static_cast<std::uint8_t>(record.version.kind);
  const auto flag = [&](bool set, std::uint8_t bit) {
    if (set) head.flags = static_cast<std::uint8_t>(head.flags | bit);
  };
  flag(record.state != BaseState::kKnown, kUnknown);
  flag(record.stored, kStored);
  flag(record.racy, kRacy);
  flag(record.sha256.has_value(), kHashed);
  if (record.sha256) head.sha256 = *record.sha256;
  head.check = check_of(head, record.path);
  return head;
}

BaseRecord record_of(const Head& head, std::string path) {
  BaseRecord out;
  out.path = std::move(path);
  out.state = (head.flags & kUnknown) != 0 ? BaseState::kUnknown : BaseState::kKnown;
  out.version.kind = head.kind <= 4 ? static_cast<layer::Kind>(head.kind) : layer::Kind::kOther;
  out.version.mode = head.mode;
  out.version.uid = head.uid;
  out.version.gid = head.gid;
  out.version.size = head.size;
  out.version.mtime_ns = head.mtime_ns;
  out.version.ctime_ns = head.ctime_ns;
  out.version.inode = head.inode;
  out.version.device = head.device;
  if ((head.flags & kHashed) != 0) out.sha256 = head.sha256;
  out.stored = (head.flags & kStored) != 0;
  out.racy = (head.flags & kRacy) != 0;
  return out;
}

}  // namespace

Result<RecordLog> RecordLog::open(const std::filesystem::path& file) {
  TRY_ASSIGN(os::UniqueFd fd, os::open_file(file, O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return Error::from_errno("meta-records");
  if (st.st_size < static_cast<off_t>(kMagic.size())) {
    if (::ftruncate(fd.get(), 0) != 0) return Error::from_errno("meta-records");
    TRY(os::write_all(fd.get(), kMagic));
  }
  RecordLog out(file, std::move(fd), true);
  TRY(out.load());
  // A kill in the middle of a write leaves a part of a record.
  if (::ftruncate(out.fd_.get(), static_cast<off_t>(out.end_)) != 0) {
    return Error::from_errno("meta-records");
  }
  return out;
}

Result<RecordLog> RecordLog::open_for_reading(const std::filesystem::path& file) {
  RecordLog out(file, os::UniqueFd(), false);
  TRY(out.catch_up());
  return out;
}

Status RecordLog::copy_to(const std::filesystem::path& file) {
  TRY(catch_up());
  if (!fd_) return {};
  TRY_ASSIGN(const os::UniqueFd to, os::open_file(file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW));
  constexpr std::size_t kPiece = 1U << 20U;
  for (std::uint64_t at = 0; at < end_;) {
    TRY_ASSIGN(const std::string bytes,
               bytes_at(at, static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, end_ - at))));
    TRY(os::write_all(to.get(), bytes));
    at += bytes.size();
    if (bytes.empty()) break;
  }
  return {};
}

Status RecordLog::catch_up() {
  if (writing_) return {};
  if (!fd_) {
    auto opened = os::open_file(file_, O_RDONLY | O_NOFOLLOW);
    if (!opened.ok() && opened.error().error_number() == ENOENT) return {};
    if (!opened.ok()) return opened.error();
    fd_ = std::move(opened).value();
  }
  return end_ == 0 ? load() : load_more();
}

Status RecordLog::load() {
  index_.clear();
  bases_ = stored_bytes_ = end_ = 0;
  TRY_ASSIGN(const std::string magic, bytes_at(0, kMagic.size()));
  // Its writer has not come to write anything.
  if (!writing_ && magic.empty()) return {};
  if (magic != kMagic) {
    return Error("meta-records: its format is not known to this version; start a new sandbox");
  }
  end_ = kMagic.size();
  return load_more();
}

Status RecordLog::load_more() {
  for (;;) {
    TRY_ASSIGN(const std::optional<Frame> frame, frame_at(end_));
    if (!frame) return {};
    index_.add(PathIndex::hash(static_cast<std::uint8_t>(frame->kind), frame->record.path), end_);
    if (frame->kind == Kind::kBase) ++bases_;
    stored_bytes_ += frame->content_size;
    end_ = frame->end;
  }
}

// Fewer than `size` where the log ends before.
Result<std::string> RecordLog::bytes_at(std::uint64_t at, std::size_t size) const {
  if (!waiting_.empty() && at >= end_) {
    if (at - end_ >= waiting_.size()) return std::string();
    return waiting_.substr(at - end_, size);
  }
  std::string out(size, '\0');
  std::size_t done = 0;
  while (fd_ && done < size) {
    const ssize_t got =
        ::pread(fd_.get(), out.data() + done, size - done, static_cast<off_t>(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error::from_errno("meta-records");
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  out.resize(done);
  return out;
}

Result<std::optional<RecordLog::Frame>> RecordLog::frame_at(std::uint64_t at) const {
  constexpr std::size_t kGuess = 512;
  TRY_ASSIGN(std::string bytes, bytes_at(at, kGuess));
  Head head;
  if (bytes.size() < sizeof head) return std::optional<Frame>();
  std::memcpy(&head, bytes.data(), sizeof head);
  const std::size_t need = sizeof head + head.path_size;
  if (head.path_size > kMaxPath || head.content_size > kMaxContent) return std::optional<Frame>();
  if (bytes.size() < need) {
    TRY_ASSIGN(bytes, bytes_at(at, need));
    if (bytes.size() < need) return std::optional<Frame>();
  }
  std::string path = bytes.substr(sizeof head, head.path_size);
  if (head.check != check_of(head, path)) return std::optional<Frame>();
  Frame frame;
  frame.kind = static_cast<Kind>(head.what);
  frame.record = record_of(head, std::move(path));
  frame.content_at = at + need;
  frame.content_size = head.content_size;
  frame.end = at + need + head.content_size;
  // The last byte of the content is there, or the record is not. What lies before the end was
  // looked at when it was read first, or written here.
  if (head.content_size > 0 && frame.end > end_ + waiting_.size()) {
    TRY_ASSIGN(const std::string last, bytes_at(frame.end - 1, 1));
    if (last.empty()) return std::optional<Frame>();
  }
  return std::optional<Frame>(std::move(frame));
}

Result<std::optional<RecordLog::Frame>> RecordLog::find(Kind kind, std::string_view path) {
  TRY(catch_up());
  std::optional<Frame> out;
  Status failure;
  index_.find(PathIndex::hash(static_cast<std::uint8_t>(kind), path), [&](std::uint64_t at) {
    auto frame = frame_at(at);
    if (!frame.ok()) {
      failure = frame.error();
      return true;
    }
    if (!*frame || (*frame)->kind != kind || (*frame)->record.path != path) return false;
    out = std::move(*frame);
    return true;
  });
  if (!failure.ok()) return failure.error();
  return out;
}

Result<std::optional<BaseRecord>> RecordLog::base(std::string_view path) {
  TRY_ASSIGN(std::optional<Frame> frame, find(Kind::kBase, path));
  if (!frame) return std::optional<BaseRecord>();
  return std::optional<BaseRecord>(std::move(frame->record));
}

Result<std::optional<ReadRecord>> RecordLog::read(std::string_view path) {
  TRY_ASSIGN(std::optional<Frame> frame, find(Kind::kRead, path));
  if (!frame) return std::optional<ReadRecord>();
  return std::optional<ReadRecord>({std::move(frame->record.path), frame->record.version});
}

Result<std::optional<std::string>> RecordLog::content(std::string_view path) {
  TRY_ASSIGN(const std::optional<Frame> frame, find(Kind::kBase, path));
  if (!frame || !frame->record.stored || !frame->record.sha256) {
    return std::optional<std::string>();
  }
  TRY_ASSIGN(std::string bytes, bytes_at(frame->content_at, frame->content_size));
  // After a loss of power the file may have its length without its bytes.
  if (bytes.size() != frame->content_size || sha256(bytes) != *frame->record.sha256) {
    return std::optional<std::string>();
  }
  return std::optional<std::string>(std::move(bytes));
}

Result<bool> RecordLog::add_base(const BaseRecord& record, std::string_view content) {
  TRY_ASSIGN(const std::optional<Frame> known, find(Kind::kBase, record.path));
  if (known) return false;
  TRY(append(Kind::kBase, record, record.stored ? content : std::string_view()));
  ++bases_;
  return true;
}

Status RecordLog::add_read(const ReadRecord& record) {
  TRY_ASSIGN(const std::optional<Frame> known, find(Kind::kRead, record.path));
  if (known) return {};
  BaseRecord as_base;
  as_base.path = record.path;
  as_base.state = BaseState::kKnown;
  as_base.version = record.version;
  return append(Kind::kRead, as_base, {});
}

Status RecordLog::append(Kind kind, const BaseRecord& record, std::string_view content) {
  if (!writing_) return Error::from_errno("meta-records", EROFS);
  if (record.path.size() > kMaxPath) return Error::from_errno("meta-records", ENAMETOOLONG);
  const Head head = head_of(record, static_cast<std::uint8_t>(kind), content.size());
  const std::uint64_t at = end_ + waiting_.size();
  const std::size_t before = waiting_.size();
  waiting_.append(reinterpret_cast<const char*>(&head), sizeof head);
  waiting_.append(record.path);
  waiting_.append(content);
  if (!batching_ || waiting_.size() > kMaxWaiting) {
    // Of a failed write only this record is told to have failed: what waited before stays.
    if (Status written = flush(); !written.ok()) {
      waiting_.resize(before);
      return written;
    }
  }
  index_.add(PathIndex::hash(static_cast<std::uint8_t>(kind), record.path), at);
  stored_bytes_ += content.size();
  return {};
}

Status RecordLog::flush() {
  if (waiting_.empty()) return {};
  std::size_t done = 0;
  while (done < waiting_.size()) {
    const ssize_t put = ::pwrite(fd_.get(), waiting_.data() + done, waiting_.size() - done,
                                 static_cast<off_t>(end_ + done));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) {
      const Error error = Error::from_errno("meta-records", put == 0 ? EIO : errno);
      // What is left of it would be taken for the end of the log, and is where the next one goes.
      (void)!::ftruncate(fd_.get(), static_cast<off_t>(end_));
      return error;
    }
    done += static_cast<std::size_t>(put);
  }
  end_ += waiting_.size();
  waiting_.clear();
  if (waiting_.capacity() > 2 * kMaxWaiting) waiting_.shrink_to_fit();
  unsynced_ = true;
  return {};
}

Status RecordLog::end_batch() {
  batching_ = false;
  Status written = flush();
  if (!written.ok()) {
    // None of what waited was.
    waiting_.clear();
    TRY(load());
  }
  return written;
}

Status RecordLog::for_each(Kind kind, std::string_view prefix,
                           const std::function<Status(const BaseRecord&)>& visit) {
  TRY(catch_up());
  std::vector<std::pair<std::string, std::uint64_t>> found;
  Status failure;
  const std::string below = std::string(prefix) + "/";
  index_.for_each([&](std::uint64_t at) {
    if (!failure.ok()) return;
    auto frame = frame_at(at);
    if (!frame.ok()) {
      failure = frame.error();
      return;
    }
    if (!*frame || (*frame)->kind != kind) return;
    std::string& path = (*frame)->record.path;
    if (!prefix.empty() && path != prefix && !path.starts_with(below)) return;
    found.emplace_back(std::move(path), at);
  });
  TRY(failure);
  std::sort(found.begin(), found.end());
  for (std::size_t i = 0; i < found.size(); ++i) {
    // The first record of a path stays.
    if (i > 0 && found[i].first == found[i - 1].first) continue;
    TRY_ASSIGN(const std::optional<Frame> frame, frame_at(found[i].second));
    if (frame) TRY(visit(frame->record));
  }
  return {};
}

Status RecordLog::for_each_base(std::string_view prefix,
                                const std::function<Status(const BaseRecord&)>& visit) {
  return for_each(Kind::kBase, prefix, visit);
}

Status RecordLog::for_each_read(const std::function<Status(const ReadRecord&)>& visit) {
  return for_each(Kind::kRead, "", [&](const BaseRecord& record) {
    return visit({record.path, record.version});
  });
}

os::UniqueFd RecordLog::unsynced() {
  if (!unsynced_ || !fd_) return {};
  os::UniqueFd out(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 3));
  if (out) unsynced_ = false;
  return out;
}

}  // namespace cofferdam::layer
