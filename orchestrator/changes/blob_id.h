// The id that git gives a blob: SHA-1 of "blob <size>\0" and the content, as 40 hexadecimal digits.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"
#include "orchestrator/changes/binary_hunk.h"

namespace cofferdam::orchestrator::changes {

inline constexpr std::string_view kNullBlobId = "0000000000000000000000000000000000000000";

Result<std::string> blob_id(std::uint64_t size, const ContentSource& source);

}  // namespace cofferdam::orchestrator::changes
