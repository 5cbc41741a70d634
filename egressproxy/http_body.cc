#include "egressproxy/http_body.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "egressproxy/http_syntax.h"

namespace cofferdam::egressproxy::http {
namespace {

constexpr std::size_t kMaxChunkLine = 1024;
constexpr std::size_t kMaxTrailers = 8192;

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

// Waits for more from `source`, at most `idle`.
Async<error_code> read_more(Stream& source, milliseconds idle) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  Deadline deadline(executor, idle, [&source] { source.close(); });
  co_return co_await source.read_more();
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

Async<Carried> carry_chunked(Stream& source, Stream& sink, bool sink_chunked, milliseconds idle) {
  ChunkReader reader;
  while (true) {
    std::string content;
    std::size_t used = 0;
    const ChunkReader::State state = reader.read(source.buffered(), content, used);
    source.consume(used);
    if (!content.empty()) {
      if (sink_chunked) content = chunk_of(content);
      if (co_await sink.write(content)) co_return Carried::kCutSink;
    }
    if (state == ChunkReader::State::kMalformed) co_return Carried::kCutSource;
    if (state == ChunkReader::State::kDone) break;
    if (co_await read_more(source, idle)) co_return Carried::kCutSource;
  }
  if (sink_chunked && co_await sink.write("0\r\n\r\n")) co_return Carried::kCutSink;
  co_return Carried::kWhole;
}

}  // namespace

Async<Carried> carry_body(Stream& source, Stream& sink, Framing source_framing, bool sink_chunked,
                          milliseconds idle) {
  if (source_framing.kind == BodyKind::kNone) co_return Carried::kWhole;
  if (source_framing.kind == BodyKind::kChunked) {
    co_return co_await carry_chunked(source, sink, sink_chunked, idle);
  }
  const bool counted = source_framing.kind == BodyKind::kLength;
  std::uint64_t left = source_framing.length;
  while (!counted || left > 0) {
    if (source.buffered().empty()) {
      const error_code error = co_await read_more(source, idle);
      if (error == asio::error::eof && !counted) break;
      if (error) co_return Carried::kCutSource;
      continue;
    }
    std::string_view piece = source.buffered();
    if (counted)
      piece =
          piece.substr(0, static_cast<std::size_t>(std::min<std::uint64_t>(left, piece.size())));
    const std::size_t size = piece.size();
    const std::string text = sink_chunked ? chunk_of(piece) : std::string(piece);
    if (co_await sink.write(text)) co_return Carried::kCutSink;
    source.consume(size);
    left -= counted ? size : 0;
  }
  if (sink_chunked && co_await sink.write("0\r\n\r\n")) co_return Carried::kCutSink;
  co_return Carried::kWhole;
}

}  // namespace cofferdam::egressproxy::http
