// YAML text → the manifest's keys as checked JSON: the only reader of manifests.
//
// Sizes come out as bytes, durations as milliseconds, everything else as it was written. Pure.
#pragma once

#include <string_view>

#include "common/base/json_text.h"
#include "common/base/result.h"

namespace cofferdam::orchestrator {

inline constexpr std::size_t kMaxManifestBytes = 1U << 20U;

// An error reads "FILE:LINE: key: what is wrong". Unknown keys, keys that are given twice, keys of
// later versions, wrong shapes and values that do not parse are errors; nothing is ignored.
Result<Json> read_manifest_yaml(std::string_view text, std::string_view file);

}  // namespace cofferdam::orchestrator
