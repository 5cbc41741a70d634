// Configuration files of sections and keys, as Python's configparser reads them (pip.conf). Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace cofferdam::orchestrator {

// "section.key" → value; section and key in lower case, '_' in keys as '-'; the lines of a value
// are joined by newlines. A line that is none of these is an error with its number.
Result<std::map<std::string, std::string>> parse_ini(std::string_view text);

// The words of a text, separated by white space.
std::vector<std::string> words_of(std::string_view text);

}  // namespace cofferdam::orchestrator
