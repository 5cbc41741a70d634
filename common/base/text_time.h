// Times as text. Pure but for now_rfc3339.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace cofferdam {

using WallTime = std::chrono::system_clock::time_point;

// RFC 3339 in UTC with microseconds: 2026-01-02T03:04:05.000006Z.
std::string to_rfc3339(WallTime time);
std::string now_rfc3339();
// Only what to_rfc3339 writes, with or without the fraction of up to six digits.
std::optional<WallTime> parse_rfc3339(std::string_view text);

}  // namespace cofferdam
