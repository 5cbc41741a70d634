// The texts of a TOML file: enough to read a client's configuration. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace cofferdam::orchestrator {

using TomlPath = std::vector<std::string>;

// Every key whose value is a string, by its full path, also those of inline tables. Values of other
// kinds are passed over. Arrays of tables, and what is no TOML, are errors with the line.
Result<std::map<TomlPath, std::string>> read_toml_texts(std::string_view text);

}  // namespace cofferdam::orchestrator
