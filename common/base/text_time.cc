#include "common/base/text_time.h"

#include <cstdio>
#include <ctime>

namespace cofferdam {

std::string to_rfc3339(WallTime time) {
  using std::chrono::duration_cast;
  using std::chrono::microseconds;
  const auto micros = duration_cast<microseconds>(time.time_since_epoch()).count();
  const std::time_t seconds = static_cast<std::time_t>(micros / 1'000'000);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", parts.tm_year + 1900,
                parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                static_cast<int>(micros % 1'000'000));
  return buffer;
}

std::string now_rfc3339() {
  return to_rfc3339(std::chrono::system_clock::now());
}

}  // namespace cofferdam
