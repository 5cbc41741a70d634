// Rules into a manifest's text, which keeps its order, its comments and everything else. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace cofferdam::orchestrator {

// A manifest of its own with these rules. `about` becomes a comment; it is one line.
std::string new_manifest(const std::vector<std::string>& rules, std::string_view about);

// `text` (of `file`, for errors) with the rules behind those of network.rules. The result is read
// back: an error says that the text has a form that cannot be added to, and nothing is lost.
Result<std::string> add_rules(std::string_view text, std::string_view file,
                              const std::vector<std::string>& rules);

// The texts of network.rules.
Result<std::vector<std::string>> rules_of(std::string_view text, std::string_view file);

}  // namespace cofferdam::orchestrator
