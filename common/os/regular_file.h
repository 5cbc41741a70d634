// A file that somebody else may have put there: read only if it is what it should be.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "common/base/result.h"

namespace cofferdam::os {

// The content of a regular file. A link at the last component, a FIFO, a device or a socket is an
// error and never waited for; so is more than `limit` bytes.
Result<std::string> read_regular_file(const std::filesystem::path& path, std::size_t limit);

}  // namespace cofferdam::os
