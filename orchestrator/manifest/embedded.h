// Files of policies/ that are part of the program, byte for byte.
#pragma once

#include <span>
#include <string_view>

namespace cofferdam::orchestrator {

struct EmbeddedFile {
  std::string_view name;
  std::string_view text;
};

std::string_view embedded_manifest_schema();   // policies/schema/manifest.v1.json
std::string_view embedded_default_manifest();  // policies/templates/default.yaml
std::string_view embedded_home_rules();        // policies/home_outside.json

// policies/templates but the default, in the order in which they are shown; the text of one, empty
// where there is none of that name.
std::span<const EmbeddedFile> embedded_templates();
std::string_view embedded_template(std::string_view name);
std::string_view embedded_preset(std::string_view name);  // policies/presets/NAME.json, or empty

}  // namespace cofferdam::orchestrator
