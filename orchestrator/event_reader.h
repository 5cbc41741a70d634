// Reading a sandbox's events.jsonl back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "common/base/json_text.h"
#include "common/base/result.h"

namespace cofferdam::orchestrator {

// Calls `visit` with each whole line from byte `offset` on and returns the offset after the last
// whole line. A line that is no JSON object is skipped: a service may have died while writing. A
// file that does not exist is empty.
Result<std::uint64_t> for_each_event(const std::filesystem::path& file, std::uint64_t offset,
                                     const std::function<void(const Json& event)>& visit);

// A field as text: "" where it is missing; numbers as they are written.
std::string event_text(const Json& event, const char* field);
std::uint64_t event_number(const Json& event, const char* field);

}  // namespace cofferdam::orchestrator
