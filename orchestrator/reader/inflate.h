// zlib streams of known size, from a source that gives bytes by offset. Nothing is ever read past
// what is asked for, nothing grows past what was announced.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace cofferdam::orchestrator::reader {

// Up to `limit` bytes from `offset`; empty at the end.
using ByteSource = std::function<Result<std::string>(std::uint64_t offset, std::size_t limit)>;
ByteSource source_of_file(int fd);
ByteSource source_of_bytes(std::string_view bytes);  // which outlive it

// The stream that begins at `offset`: exactly `size` bytes, and then its end.
Result<std::string> inflate_exactly(const ByteSource& source, std::uint64_t offset,
                                    std::uint64_t size);

struct LooseObject {
  std::string type;
  std::string content;
};
// A loose object's file: one stream, "<type> <size>\0" in front. `limit` bounds the content.
Result<LooseObject> read_loose_object(const ByteSource& source, std::uint64_t limit);

}  // namespace cofferdam::orchestrator::reader
