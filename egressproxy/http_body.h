// HTTP/1.x bodies: strict chunk reading (RFC 9112 7.1), and carrying a body from one side to the
// other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "egressproxy/http_head.h"
#include "egressproxy/stream.h"

namespace cofferdam::egressproxy::http {

// Takes a chunked body apart, in any pieces. Chunk extensions are dropped, trailers too.
class ChunkReader final {
 public:
  enum class State : std::uint8_t { kMore, kDone, kMalformed };
  // Reads from `bytes`, appends content to `content`, and tells in `used` how far it came. Stops
  // behind the body's end.
  State read(std::string_view bytes, std::string& content, std::size_t& used);

 private:
  enum class Part : std::uint8_t { kSize, kContent, kContentEnd, kTrailer, kDone, kMalformed };
  State read_line(std::string_view line);

  Part part_ = Part::kSize;
  std::uint64_t left_ = 0;
  std::size_t trailer_bytes_ = 0;
};

// "<hex>[;extension]" of a chunk's first line; nothing for anything else.
bool parse_chunk_size(std::string_view line, std::uint64_t& size);

enum class Carried : std::uint8_t {
  kWhole,      // the body has come to its end on both sides
  kCutSource,  // the sender ended early, or was malformed
  kSlow,       // the sender was too slow
  kCutSink,    // the receiver is gone, or takes nothing
};

// How long a body's two sides are waited for.
struct Patience {
  milliseconds read;   // for more from the source
  milliseconds write;  // for the sink to take a piece
  // `read` is what every kMinBodyBytes may take, and not each wait: for a sender that drips.
  bool at_least_a_rate = false;
};

// Carries one body in bounded memory. `source_framing` says how it comes, `sink_chunked` whether it
// is written in chunks.
Async<Carried> carry_body(Stream& source, Stream& sink, Framing source_framing, bool sink_chunked,
                          Patience patience);

}  // namespace cofferdam::egressproxy::http
