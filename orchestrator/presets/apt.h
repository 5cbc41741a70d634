// apt: the archives that its source lists name. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/presets/presets.h"

namespace cofferdam::orchestrator {

// URIs of one-line entries (`deb [options] URI suite…`) and of deb822 paragraphs (`URIs:`), in
// order, each once; disabled paragraphs left out.
std::vector<std::string> uris_of_list(std::string_view text);
std::vector<std::string> uris_of_sources(std::string_view text);

Result<PresetResult> apt_preset(const std::vector<std::string>& uris, const ResolveHost& resolve);

}  // namespace cofferdam::orchestrator
