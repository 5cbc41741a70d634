// JSON at the seams: parsing that returns a Result, canonical text, digests.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace cofferdam {

using Json = nlohmann::json;

// Parses exactly one JSON text; the error names the byte offset. Depth is limited to 64.
Result<Json> parse_json(std::string_view text);

// One line, keys sorted, no white space, invalid UTF-8 replaced: equal values give equal bytes.
std::string canonical_json(const Json& value);

// For people and programs behind a terminal: ASCII only, so that no control character, also none of
// C1 and none that turns text around, is ever printed. `indent` -1: one line.
std::string printable_json(const Json& value, int indent);

}  // namespace cofferdam
