// pip: its indexes, as its own configuration names them. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/presets/presets.h"

namespace cofferdam::orchestrator {

struct PipConfig {
  std::optional<RegistryUrl> index;  // none: pip's own default
  std::vector<RegistryUrl> extra;
  std::vector<std::string> trusted;  // hosts that pip takes without TLS
  bool no_index = false;
  std::string ca_file;
};

// What pip itself says of its default: the index and the host that serves its files.
struct PipDefault {
  RegistryUrl index;
  std::string file_host;
};

// `files` are texts of pip.conf in the order in which pip reads them (a later one wins),
// `variables` the caller's PIP_… ones, which win over all.
Result<PipConfig> parse_pip_config(const std::vector<std::string>& files,
                                   const std::map<std::string, std::string>& variables);

// Two lines: the index's URL, the host of the files.
Result<PipDefault> parse_pip_default(std::string_view text);

// Index URLs that a requirements file names.
std::vector<RegistryUrl> indexes_of_requirements(std::string_view text);

struct PipSurroundings {
  std::optional<PipDefault> builtin;
  std::string certificates;
  std::string project_requirements;
};
Result<PresetResult> pip_preset(const PipConfig& config, const PipSurroundings& surroundings,
                                const ResolveHost& resolve);

}  // namespace cofferdam::orchestrator
