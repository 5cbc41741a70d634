#include "orchestrator/manifest/quantity.h"

#include <array>
#include <charconv>
#include <limits>

namespace cofferdam::orchestrator {
namespace {

struct Unit {
  std::string_view text;
  std::uint64_t factor;
};
// Largest first: the texts of a value use the largest unit that divides it.
constexpr std::array<Unit, 5> kDurations = {
    {{"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1000}, {"ms", 1}}};
constexpr std::array<Unit, 4> kSizes = {
    {{"TiB", 1ULL << 40U}, {"GiB", 1ULL << 30U}, {"MiB", 1ULL << 20U}, {"KiB", 1ULL << 10U}}};
constexpr std::uint64_t kLongest = 3650ULL * 86'400'000;

std::optional<std::uint64_t> multiply(std::uint64_t a, std::uint64_t b) {
  if (b != 0 && a > std::numeric_limits<std::uint64_t>::max() / b) return std::nullopt;
  return a * b;
}

}  // namespace

std::optional<std::uint64_t> parse_count(std::string_view text, std::uint64_t maximum) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value > maximum) {
    return std::nullopt;
  }
  return value;
}

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  const std::size_t digits = text.find_first_not_of("0123456789");
  if (digits == std::string_view::npos) return std::nullopt;
  for (const Unit& unit : kDurations) {
    if (text.substr(digits) != unit.text) continue;
    const auto count = parse_count(text.substr(0, digits), kLongest);
    if (!count) return std::nullopt;
    const auto total = multiply(*count, unit.factor);
    if (!total || *total == 0 || *total > kLongest) return std::nullopt;
    return std::chrono::milliseconds(*total);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> parse_size(std::string_view text) {
  constexpr std::uint64_t kLargest = std::numeric_limits<std::int64_t>::max();
  for (const Unit& unit : kSizes) {
    if (!text.ends_with(unit.text)) continue;
    const auto count = parse_count(text.substr(0, text.size() - unit.text.size()), kLargest);
    const auto total = count ? multiply(*count, unit.factor) : std::nullopt;
    return total && *total <= kLargest ? total : std::nullopt;
  }
  return parse_count(text, kLargest);
}

std::string size_text(std::uint64_t bytes) {
  for (const Unit& unit : kSizes) {
    if (bytes != 0 && bytes % unit.factor == 0) {
      return std::to_string(bytes / unit.factor) + std::string(unit.text);
    }
  }
  return std::to_string(bytes);
}

std::string duration_text(std::chrono::milliseconds duration) {
  const auto count = static_cast<std::uint64_t>(duration.count());
  for (const Unit& unit : kDurations) {
    if (count != 0 && count % unit.factor == 0) {
      return std::to_string(count / unit.factor) + std::string(unit.text);
    }
  }
  return "0ms";
}

}  // namespace cofferdam::orchestrator
