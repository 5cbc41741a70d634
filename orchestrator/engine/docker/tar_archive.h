// A tar archive of a few files in memory, as an image's layer. Pure.
#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"

namespace cofferdam::orchestrator::docker {

// POSIX ustar (pax(1), "ustar Interchange Format") with one regular file owned by root, mode 0555,
// and no time. The name is relative, at most 100 bytes.
Result<std::string> make_tar_of_program(std::string_view name, std::string_view content);

}  // namespace cofferdam::orchestrator::docker
