#include "orchestrator/reader/inflate.h"

#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

namespace cofferdam::orchestrator::reader {
namespace {

constexpr std::size_t kPiece = 64U << 10U;
constexpr std::size_t kMaxHeader = 32;  // "commit " and a number

class Inflater final {
 public:
  Inflater(const ByteSource& source, std::uint64_t offset) : source_(source), offset_(offset) {
    ready_ = ::inflateInit(&stream_) == Z_OK;
  }
  ~Inflater() {
    if (ready_) ::inflateEnd(&stream_);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Adds what comes next to `out`, at most `limit` bytes; fewer only at the stream's end.
  Status more(std::string& out, std::size_t limit) {
    if (!ready_) return Error("zlib: out of memory");
    std::array<char, kPiece> buffer;  // NOLINT: filled before it is read
    while (limit > 0 && !ended_) {
      if (stream_.avail_in == 0) {
        TRY_ASSIGN(piece_, source_(offset_, kPiece));
        if (piece_.empty()) return Error("a stream that is cut short");
        offset_ += piece_.size();
        stream_.next_in = reinterpret_cast<Bytef*>(piece_.data());  // NOLINT: zlib's type
        stream_.avail_in = static_cast<uInt>(piece_.size());
      }
      const std::size_t wanted = std::min(limit, buffer.size());
      stream_.next_out = reinterpret_cast<Bytef*>(buffer.data());  // NOLINT: zlib's type
      stream_.avail_out = static_cast<uInt>(wanted);
      const int code = ::inflate(&stream_, Z_NO_FLUSH);
      const std::size_t got = wanted - stream_.avail_out;
      out.append(buffer.data(), got);
      limit -= got;
      if (code == Z_STREAM_END) {
        ended_ = true;
      } else if (code != Z_OK && code != Z_BUF_ERROR) {
        return Error("a broken zlib stream");
      }
    }
    return {};
  }
  bool ended() const { return ended_; }

 private:
  const ByteSource& source_;
  std::uint64_t offset_;
  std::string piece_;
  z_stream stream_{};
  bool ready_ = false;
  bool ended_ = false;
};

// Nothing but the stream's end may follow.
Status expect_end(Inflater& inflater) {
  std::string rest;
  TRY(inflater.more(rest, 1));
  if (!rest.empty() || !inflater.ended()) return Error("a stream that is longer than it says");
  return {};
}

// In steps, so that a size that is a lie costs nothing.
Status fill(Inflater& inflater, std::string& out, std::uint64_t size) {
  constexpr std::uint64_t kStep = 1U << 20U;
  while (out.size() < size) {
    const std::size_t before = out.size();
    TRY(inflater.more(out,
                      static_cast<std::size_t>(std::min<std::uint64_t>(size - before, kStep))));
    if (out.size() == before) return Error("a stream that is shorter than it says");
  }
  return {};
}

}  // namespace

ByteSource source_of_file(int fd) {
  return [fd](std::uint64_t offset, std::size_t limit) -> Result<std::string> {
    std::string bytes(limit, '\0');
    while (true) {
      const ssize_t got = ::pread(fd, bytes.data(), limit, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Error::from_errno("read");
      bytes.resize(static_cast<std::size_t>(got));
      return bytes;
    }
  };
}

ByteSource source_of_bytes(std::string_view bytes) {
  return [bytes](std::uint64_t offset, std::size_t limit) -> Result<std::string> {
    if (offset >= bytes.size()) return std::string();
    return std::string(bytes.substr(static_cast<std::size_t>(offset), limit));
  };
}

Result<std::string> inflate_exactly(const ByteSource& source, std::uint64_t offset,
                                    std::uint64_t size) {
  Inflater inflater(source, offset);
  std::string out;
  TRY(fill(inflater, out, size));
  TRY(expect_end(inflater));
  return out;
}

Result<LooseObject> read_loose_object(const ByteSource& source, std::uint64_t limit) {
  Inflater inflater(source, 0);
  std::string out;
  TRY(inflater.more(out, kMaxHeader));
  const std::size_t end = out.find('\0');
  const std::size_t blank = out.find(' ');
  if (end == std::string::npos || blank == std::string::npos || blank > end) {
    return Error("no object header");
  }
  const std::string_view digits = std::string_view(out).substr(blank + 1, end - blank - 1);
  std::uint64_t size = 0;
  const auto [stop, code] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
  if (code != std::errc() || stop != digits.data() + digits.size() || digits.empty() ||
      (digits.size() > 1 && digits[0] == '0')) {
    return Error("an object header with a broken size");
  }
  if (size > limit) return Error("an object of " + std::to_string(size) + " bytes, too large");
  LooseObject object;
  object.type = out.substr(0, blank);
  out.erase(0, end + 1);
  if (out.size() > size) return Error("a stream that is longer than it says");
  TRY(fill(inflater, out, size));
  TRY(expect_end(inflater));
  object.content = std::move(out);
  return object;
}

}  // namespace cofferdam::orchestrator::reader
