// Durations and sizes as users write them: 1500ms, 90s, 10m, 2h, 7d; 512MiB, 2GiB, 4096.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cofferdam::orchestrator {

// A whole number and one of ms, s, m, h, d; at most ten years, at least 1 ms.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

// A whole number of bytes, or one with KiB, MiB, GiB or TiB; nothing where it does not fit.
std::optional<std::uint64_t> parse_size(std::string_view text);

// Decimal digits only, at most `maximum`.
std::optional<std::uint64_t> parse_count(std::string_view text, std::uint64_t maximum);

// The shortest exact form: 10GiB, 1536MiB, 4097; 90s, 10m, 1500ms.
std::string size_text(std::uint64_t bytes);
std::string duration_text(std::chrono::milliseconds duration);

}  // namespace cofferdam::orchestrator
