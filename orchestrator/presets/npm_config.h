// What npm says about its own configuration, and what a repository's .npmrc names. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/presets/registry_url.h"

namespace cofferdam::orchestrator {

struct NpmConfig {
  RegistryUrl registry;
  struct Scoped {
    std::string scope;  // "@company"
    RegistryUrl registry;
  };
  std::vector<Scoped> scoped;
  std::string ca_file;             // path, or empty
  std::vector<std::string> ca;     // PEM texts
  std::string node_directory;      // headers for native modules, or empty
  std::vector<std::string> files;  // that npm has read, where they are
};

// The output of `npm config ls --json`. Tokens are never taken from it.
Result<NpmConfig> parse_npm_config(std::string_view json);

// The registries that a project's .npmrc names: `registry=URL`, `@scope:registry=URL`. Lines that
// are not understood are left out: this only makes hints.
std::vector<RegistryUrl> registries_of_npmrc(std::string_view text);

// Only the CERTIFICATE blocks of a PEM text, each ended by a newline: a bundle that holds a private
// key never carries it inside.
std::string certificates_of(std::string_view pem);

}  // namespace cofferdam::orchestrator
