// One function per preset: reads the user's configuration or asks the client, and makes the plan's
// additions. They touch files and start clients; what they found is judged by pure functions.
#pragma once

#include <filesystem>

#include "common/base/result.h"
#include "orchestrator/presets/presets.h"

namespace cofferdam::orchestrator {

Result<PresetResult> discover_npm(const PresetQuery& query, const ResolveHost& resolve);
Result<PresetResult> discover_pip(const PresetQuery& query, const ResolveHost& resolve);
Result<PresetResult> discover_cargo(const PresetQuery& query, const ResolveHost& resolve);
Result<PresetResult> discover_go(const PresetQuery& query, const ResolveHost& resolve);
// `directory` is /etc/apt.
Result<PresetResult> discover_apt(const std::filesystem::path& directory, const PresetQuery& query,
                                  const ResolveHost& resolve);
Result<PresetResult> discover_git(const PresetQuery& query, const ResolveHost& resolve);

}  // namespace cofferdam::orchestrator
