// Times as text. Pure but for now_rfc3339.
#pragma once

#include <chrono>
#include <string>

namespace cofferdam {

using WallTime = std::chrono::system_clock::time_point;

// RFC 3339 in UTC with microseconds: 2026-01-02T03:04:05.000006Z.
std::string to_rfc3339(WallTime time);
std::string now_rfc3339();

}  // namespace cofferdam
