// Files of policies/ that are part of the program, byte for byte.
#pragma once

#include <string_view>

namespace cofferdam::orchestrator {

std::string_view embedded_manifest_schema();   // policies/schema/manifest.v1.json
std::string_view embedded_default_manifest();  // policies/templates/default.yaml
std::string_view embedded_npm_preset();        // policies/presets/npm.json
std::string_view embedded_home_rules();        // policies/home_outside.json

}  // namespace cofferdam::orchestrator
