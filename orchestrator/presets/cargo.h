// cargo: the registries that its own configuration names. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/presets/presets.h"

namespace cofferdam::orchestrator {

struct CargoRegistry {
  std::string name;
  RegistryUrl url;
  bool sparse = false;
};

struct CargoConfig {
  std::vector<CargoRegistry> replacement;  // of the built-in registry: one, or none
  std::vector<CargoRegistry> registries;
  std::string ca_file;
};

// `text` is config.toml, `variables` the caller's CARGO_REGISTRIES_…_INDEX.
Result<CargoConfig> parse_cargo_config(std::string_view text,
                                       const std::map<std::string, std::string>& variables);

Result<PresetResult> cargo_preset(const CargoConfig& config, const std::string& certificates,
                                  const ResolveHost& resolve);

}  // namespace cofferdam::orchestrator
