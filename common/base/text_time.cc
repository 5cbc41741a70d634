#include "common/base/text_time.h"

#include <array>
#include <cstdio>
#include <ctime>

namespace cofferdam {
namespace {

// The number that `digits` digits at `at` make, or -1.
int number_at(std::string_view text, std::size_t at, std::size_t digits) {
  int value = 0;
  for (std::size_t i = at; i < at + digits; ++i) {
    if (text[i] < '0' || text[i] > '9') return -1;
    value = value * 10 + (text[i] - '0');
  }
  return value;
}

// Microseconds of ".123"; -1 for anything else. Empty: 0.
int fraction(std::string_view text) {
  if (text.empty()) return 0;
  if (text.front() != '.' || text.size() < 2 || text.size() > 7) return -1;
  int value = number_at(text, 1, text.size() - 1);
  for (std::size_t i = text.size(); i < 7 && value > 0; ++i) value *= 10;
  return value;
}

}  // namespace

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

std::optional<WallTime> parse_rfc3339(std::string_view text) {
  constexpr std::string_view kShape = "0000-00-00T00:00:00";
  if (text.size() <= kShape.size() || text.back() != 'Z') return std::nullopt;
  for (std::size_t i = 0; i < kShape.size(); ++i) {
    if (kShape[i] != '0' && text[i] != kShape[i]) return std::nullopt;
  }
  std::array<int, 6> numbers{};
  constexpr std::array<std::size_t, 6> kPlaces = {0, 5, 8, 11, 14, 17};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = number_at(text, kPlaces[i], i == 0 ? 4 : 2);
    if (numbers[i] < 0) return std::nullopt;
  }
  text.remove_suffix(1);
  const int micros = fraction(text.substr(kShape.size()));
  const auto [year, month, day, hour, minute, second] = numbers;
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (micros < 0 || !date.ok() || hour > 23 || minute > 59 || second > 59) return std::nullopt;
  // What WallTime can hold; past it a far future would become some other time.
  constexpr int kFirstYear = 1678;
  constexpr int kLastYear = 2261;
  if (year < kFirstYear || year > kLastYear) return std::nullopt;
  return std::chrono::time_point_cast<WallTime::duration>(
      std::chrono::sys_days(date) + std::chrono::hours(hour) + std::chrono::minutes(minute) +
      std::chrono::seconds(second) + std::chrono::microseconds(micros));
}

std::string now_rfc3339() {
  return to_rfc3339(std::chrono::system_clock::now());
}

}  // namespace cofferdam
