// The paths that a git index lists (gitformat-index(5), versions 2 to 4). Pure; the bytes are taken
// for hostile.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace cofferdam::orchestrator {

Result<std::vector<std::string>> parse_git_index(std::string_view bytes);

}  // namespace cofferdam::orchestrator
