#include <algorithm>

#include "common/base/json_text.h"
#include "orchestrator/manifest/embedded.h"
#include "orchestrator/presets/presets.h"

namespace cofferdam::orchestrator {
namespace {

constexpr std::string_view kCaFile = "/etc/cofferdam/npm-ca.pem";
constexpr std::string_view kUserFile = "/etc/cofferdam/npmrc";

Status set_environment(const NpmConfig& config, const NpmSurroundings& surroundings,
                       PresetResult* result) {
  TRY_ASSIGN(const Json data, parse_json(embedded_preset("npm")).context("presets/npm.json"));
  try {
    result->env[data.at("registry_variable").get<std::string>()] = config.registry.text();
    for (const auto& [name, value] : data.at("set").items()) {
      result->env[name] = value.get<std::string>();
    }
    if (!surroundings.ca_bundle.empty()) {
      result->files[std::string(kCaFile)] = surroundings.ca_bundle;
      for (const Json& variable : data.at("ca_file_variables")) {
        const auto name = variable.get<std::string>();
        if (surroundings.extra_only && name.starts_with("npm_")) continue;
        result->env[name] = kCaFile;
      }
      result->lines.push_back({"preset", "npm: your configured certificates are copied to " +
                                             std::string(kCaFile) + " inside"});
    }
  } catch (const Json::exception& error) {
    return Error(error.what()).context("presets/npm.json");
  }
  // A scope's registry has no variable of its own that a shell would pass on.
  if (!config.scoped.empty()) {
    std::string& text = result->files[std::string(kUserFile)];
    for (const NpmConfig::Scoped& scoped : config.scoped) {
      text += scoped.scope + ":registry=" + scoped.registry.text() + "\n";
    }
    result->env["npm_config_userconfig"] = kUserFile;
  }
  // Headers for native modules, where they are part of the system that is visible inside.
  if (config.node_directory.starts_with("/usr")) {
    result->env["npm_config_nodedir"] = config.node_directory;
  }
  return {};
}

bool is_allowed(const NpmConfig& config, const RegistryUrl& url) {
  if (url.endpoint == config.registry.endpoint) return true;
  return std::any_of(config.scoped.begin(), config.scoped.end(),
                     [&](const auto& scoped) { return scoped.registry.endpoint == url.endpoint; });
}

}  // namespace

Result<PresetResult> npm_preset(const NpmConfig& config, const NpmSurroundings& surroundings,
                                const ResolveHost& resolve) {
  PresetResult result;
  result.name = "npm";
  TRY(add_registry(config.registry, "the registry", resolve, &result));
  for (const NpmConfig::Scoped& scoped : config.scoped) {
    TRY(add_registry(scoped.registry, "the registry of " + scoped.scope, resolve, &result));
  }
  TRY(set_environment(config, surroundings, &result));
  for (const RegistryUrl& url : registries_of_npmrc(surroundings.project_npmrc)) {
    if (is_allowed(config, url)) continue;
    const std::string host = url.endpoint.host.text();
    const bool usual = url.tls && url.endpoint.port == 443;
    result.hints.push_back("the repository's own .npmrc names " + host +
                           "; it is not allowed; to allow: --allow " + (usual ? host : url.rule()));
  }
  return result;
}

}  // namespace cofferdam::orchestrator
