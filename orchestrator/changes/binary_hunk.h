// Binary hunks as `git apply --binary` reads them: "literal <size>", zlib, base85, 52 bytes a line.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace cofferdam::orchestrator::changes {

using Sink = std::function<Status(std::string_view bytes)>;
// Calls its argument with the content, in pieces.
using ContentSource = std::function<Status(const Sink&)>;

// Writes "literal <size>\n", the lines, and the empty line that ends a hunk. The source must give
// exactly `size` bytes. Memory does not depend on the size.
Status write_literal_hunk(std::uint64_t size, const ContentSource& source, const Sink& out);

// git's base85 of up to 52 bytes with the length letter in front, without a newline.
std::string encode_base85_line(std::string_view bytes);

}  // namespace cofferdam::orchestrator::changes
