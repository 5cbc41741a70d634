#include "orchestrator/changes/binary_hunk.h"

#include <zlib.h>

#include <array>
#include <cstddef>

namespace cofferdam::orchestrator::changes {
namespace {

constexpr std::string_view kAlphabet =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";
constexpr std::size_t kLineBytes = 52;

// Owns a deflate stream; feeds its output out in lines of kLineBytes.
class LineDeflater final {
 public:
  explicit LineDeflater(const Sink& out) : out_(out) {
    ready_ = ::deflateInit(&stream_, Z_DEFAULT_COMPRESSION) == Z_OK;
  }
  ~LineDeflater() {
    if (ready_) ::deflateEnd(&stream_);
  }
  LineDeflater(const LineDeflater&) = delete;
  LineDeflater& operator=(const LineDeflater&) = delete;

  bool ready() const { return ready_; }
  Status feed(std::string_view bytes) {
    // zlib counts input in 32 bits.
    constexpr std::size_t kPiece = 1U << 20U;
    while (!bytes.empty()) {
      TRY(run(bytes.substr(0, kPiece), Z_NO_FLUSH));
      bytes.remove_prefix(std::min(kPiece, bytes.size()));
    }
    return {};
  }
  Status finish() {
    TRY(run({}, Z_FINISH));
    if (!pending_.empty()) TRY(out_(encode_base85_line(pending_) + "\n"));
    return {};
  }

 private:
  Status run(std::string_view bytes, int flush) {
    // deflate does not write to its input.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream_.avail_in = static_cast<uInt>(bytes.size());
    std::array<char, 16384> buffer{};
    int state = Z_OK;
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(buffer.data());
      stream_.avail_out = static_cast<uInt>(buffer.size());
      state = ::deflate(&stream_, flush);
      if (state == Z_STREAM_ERROR) return Error("zlib refused the stream");
      pending_.append(buffer.data(), buffer.size() - stream_.avail_out);
      std::size_t done = 0;
      for (; pending_.size() - done >= kLineBytes; done += kLineBytes) {
        TRY(out_(encode_base85_line(std::string_view(pending_).substr(done, kLineBytes)) + "\n"));
      }
      pending_.erase(0, done);
    } while (stream_.avail_out == 0 || (flush == Z_FINISH && state != Z_STREAM_END));
    return {};
  }

  const Sink& out_;
  z_stream stream_{};
  bool ready_ = false;
  std::string pending_;
};

}  // namespace

std::string encode_base85_line(std::string_view bytes) {
  std::string line;
  const std::size_t n = bytes.size();
  line += n <= 26 ? static_cast<char>('A' + n - 1) : static_cast<char>('a' + n - 27);
  for (std::size_t i = 0; i < n; i += 4) {
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      word <<= 8U;
      if (i + k < n) word |= static_cast<unsigned char>(bytes[i + k]);
    }
    std::array<char, 5> digits{};
    for (std::size_t k = 5; k > 0; --k) {
      digits[k - 1] = kAlphabet[word % 85];
      word /= 85;
    }
    line.append(digits.data(), digits.size());
  }
  return line;
}

Status write_literal_hunk(std::uint64_t size, const ContentSource& source, const Sink& out) {
  LineDeflater deflater(out);
  if (!deflater.ready()) return Error("zlib could not start");
  TRY(out("literal " + std::to_string(size) + "\n"));
  std::uint64_t seen = 0;
  TRY(source([&](std::string_view bytes) -> Status {
    seen += bytes.size();
    return deflater.feed(bytes);
  }));
  if (seen != size) return Error("content changed while it was read");
  TRY(deflater.finish());
  return out("\n");
}

}  // namespace cofferdam::orchestrator::changes
