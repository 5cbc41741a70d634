#include "egressproxy/http_body.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "egressproxy/deadlines.h"
#include "egressproxy/http_syntax.h"

namespace cofferdam::egressproxy::http {
namespace {

constexpr std::size_t kMaxChunkLine = 1024;
constexpr std::size_t kMaxTrailers = 8192;
constexpr std::string_view kLastChunk = "0\r\n\r\n";

std::string chunk_of(std::string_view content) {
  std::array<char, 16> hex{};
  const auto [end, code] = std::to_chars(hex.data(), hex.data() + hex.size(), content.size(), 16);
  (void)code;
  std::string chunk(hex.data(), end);
  chunk += "\r\n";
  chunk += content;
  chunk += "\r\n";
  return chunk;
}

}  // namespace

bool parse_chunk_size(std::string_view line, std::uint64_t& size) {
  const auto semicolon = line.find(';');
  const std::string_view digits = line.substr(0, semicolon);
  if (digits.empty() || digits.size() > 15) return false;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), size, 16);
  if (code != std::errc{} || end != digits.data() + digits.size()) return false;
  return semicolon == std::string_view::npos || is_field_value(line.substr(semicolon));
}

ChunkReader::State ChunkReader::read_line(std::string_view line) {
  switch (part_) {
    case Part::kSize:
      if (!parse_chunk_size(line, left_)) break;
      part_ = left_ == 0 ? Part::kTrailer : Part::kContent;
      return State::kMore;
    case Part::kContentEnd:
      if (!line.empty()) break;
      part_ = Part::kSize;
      return State::kMore;
    case Part::kTrailer:
      if (line.empty()) {
        part_ = Part::kDone;
        return State::kDone;
      }
      trailer_bytes_ += line.size() + 2;
      if (trailer_bytes_ > kMaxTrailers || line.front() == ' ' || line.front() == '\t') break;
      if (!is_token(line.substr(0, line.find(':'))) || line.find(':') == std::string_view::npos ||
          !is_field_value(line.substr(line.find(':')))) {
        break;
      }
      return State::kMore;
    default:
      break;
  }
  part_ = Part::kMalformed;
  return State::kMalformed;
}

ChunkReader::State ChunkReader::read(std::string_view bytes, std::string& content,
                                     std::size_t& used) {
  used = 0;
  while (true) {
    if (part_ == Part::kDone) return State::kDone;
    if (part_ == Part::kMalformed) return State::kMalformed;
    const std::string_view rest = bytes.substr(used);
    if (part_ == Part::kContent) {
      const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(left_, rest.size()));
      content += rest.substr(0, count);
      used += count;
      left_ -= count;
      if (left_ > 0) return State::kMore;
      part_ = Part::kContentEnd;
      continue;
    }
    const auto end = rest.find('\n');
    const std::size_t limit = part_ == Part::kTrailer ? kMaxTrailers : kMaxChunkLine;
    if (end == std::string_view::npos ? rest.size() > limit
                                      : end > limit || end == 0 || rest[end - 1] != '\r') {
      part_ = Part::kMalformed;
      return State::kMalformed;
    }
    if (end == std::string_view::npos) return State::kMore;
    used += end + 1;
    const State state = read_line(rest.substr(0, end - 1));
    if (state != State::kMore) return state;
  }
}

namespace {

// One body on its way: the waits of its two sides under one deadline.
class Carrier final {
 public:
  Carrier(const asio::any_io_executor& executor, Stream& source, Stream& sink, Patience patience)
      : source_(source),
        sink_(sink),
        patience_(patience),
        rate_left_(patience.read),
        deadline_(executor, patience.read, [this] { waited_for_->cancel(); }) {}
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  Async<Carried> carry(Framing framing, bool sink_chunked);

 private:
  Async<Carried> carry_chunked(bool sink_chunked);
  Async<error_code> read();
  Async<bool> write(std::string_view bytes);
  Async<bool> write_content(std::string_view content, bool chunked);
  Carried cut_source() const { return deadline_.expired() ? Carried::kSlow : Carried::kCutSource; }

  Stream& source_;
  Stream& sink_;
  Patience patience_;
  milliseconds rate_left_;        // for the rest of kMinBodyBytes
  std::uint64_t rate_bytes_ = 0;  // of them so far
  Stream* waited_for_ = nullptr;
  Deadline deadline_;
};

Async<error_code> Carrier::read() {
  waited_for_ = &source_;
  const Clock::time_point began = Clock::now();
  const std::uint64_t before = source_.bytes_read();
  deadline_.extend(patience_.at_least_a_rate ? rate_left_ : patience_.read);
  const error_code error = co_await source_.read_more();
  if (deadline_.expired()) co_return error_code(asio::error::timed_out);
  rate_bytes_ += source_.bytes_read() - before;
  rate_left_ -= std::chrono::duration_cast<milliseconds>(Clock::now() - began);
  if (rate_bytes_ >= kMinBodyBytes) {
    rate_bytes_ = 0;
    rate_left_ = patience_.read;
  }
  co_return error;
}

Async<bool> Carrier::write(std::string_view bytes) {
  waited_for_ = &sink_;
  deadline_.extend(patience_.write);
  const error_code error = co_await sink_.write(bytes);
  co_return !error && !deadline_.expired();
}

Async<bool> Carrier::write_content(std::string_view content, bool chunked) {
  if (!chunked) co_return co_await write(content);
  const std::string chunk = chunk_of(content);
  co_return co_await write(chunk);
}

Async<Carried> Carrier::carry_chunked(bool sink_chunked) {
  ChunkReader reader;
  while (true) {
    std::string content;
    std::size_t used = 0;
    const ChunkReader::State state = reader.read(source_.buffered(), content, used);
    source_.consume(used);
    if (!content.empty() && !co_await write_content(content, sink_chunked)) {
      co_return Carried::kCutSink;
    }
    if (state == ChunkReader::State::kMalformed) co_return Carried::kCutSource;
    if (state == ChunkReader::State::kDone) break;
    if (co_await read()) co_return cut_source();
  }
  if (sink_chunked && !co_await write(kLastChunk)) co_return Carried::kCutSink;
  co_return Carried::kWhole;
}

Async<Carried> Carrier::carry(Framing framing, bool sink_chunked) {
  if (framing.kind == BodyKind::kChunked) co_return co_await carry_chunked(sink_chunked);
  const bool counted = framing.kind == BodyKind::kLength;
  std::uint64_t left = framing.length;
  while (!counted || left > 0) {
    if (source_.buffered().empty()) {
      const error_code error = co_await read();
      if (error == asio::error::eof && !counted) break;
      if (error) co_return cut_source();
      continue;
    }
    std::string_view piece = source_.buffered();
    if (counted && left < piece.size()) piece = piece.substr(0, static_cast<std::size_t>(left));
    const std::size_t size = piece.size();
    // Nobody else reads this side meanwhile: the piece stays where it is.
    if (!co_await write_content(piece, sink_chunked)) co_return Carried::kCutSink;
    source_.consume(size);
    left -= counted ? size : 0;
  }
  if (sink_chunked && !co_await write(kLastChunk)) co_return Carried::kCutSink;
  co_return Carried::kWhole;
}

}  // namespace

Async<Carried> carry_body(Stream& source, Stream& sink, Framing source_framing, bool sink_chunked,
                          Patience patience) {
  if (source_framing.kind == BodyKind::kNone) co_return Carried::kWhole;
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  Carrier carrier(executor, source, sink, patience);
  co_return co_await carrier.carry(source_framing, sink_chunked);
}

}  // namespace cofferdam::egressproxy::http
