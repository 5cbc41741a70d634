// Deltas of a pack (gitformat-pack(5), "Deltified representation"). Pure; bytes taken for hostile.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace cofferdam::orchestrator::reader {

// What `delta` makes of `base`: at most `limit` bytes, and exactly as many as it says.
Result<std::string> apply_delta(std::string_view base, std::string_view delta, std::uint64_t limit);

}  // namespace cofferdam::orchestrator::reader
