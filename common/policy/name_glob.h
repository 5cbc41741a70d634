// One component of a gitignore pattern against one name. Pure.
#pragma once

#include <string_view>

namespace cofferdam::policy {

// `*`, `?`, `[a-z]`, `[!a-z]`, `[[:alpha:]]` and `\x`, on bytes (gitignore(5), wildmatch).
bool glob_matches(std::string_view pattern, std::string_view name, bool fold_case);

// Whether a pattern's component can be evaluated: brackets closed, classes known, no lone `\`.
bool is_valid_glob(std::string_view pattern);

// Whether it has no wildcard and no escape: it matches exactly itself.
bool is_literal(std::string_view pattern);

}  // namespace cofferdam::policy
