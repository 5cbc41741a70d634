#include <algorithm>

#include "common/base/json_text.h"
#include "common/policy/address_class.h"
#include "orchestrator/manifest/embedded.h"
#include "orchestrator/presets/presets.h"

namespace cofferdam::orchestrator {
namespace {

constexpr std::string_view kCaFile = "/etc/cofferdam/npm-ca.pem";
constexpr std::string_view kUserFile = "/etc/cofferdam/npmrc";

Status set_environment(const NpmConfig& config, const NpmSurroundings& surroundings,
                       PresetResult* result) {
  TRY_ASSIGN(const Json data, parse_json(embedded_npm_preset()).context("presets/npm.json"));
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

Status add_registry(const RegistryUrl& url, std::string_view what, const ResolveHost& resolve,
                    PresetResult* result) {
  const policy::Host& host = url.endpoint.host;
  std::vector<policy::IpAddress> addresses;
  std::string note;
  if (host.is_name()) {
    auto found = resolve(host.name());
    if (found.ok()) {
      addresses = std::move(found).value();
    } else {
      note = " (does not resolve now: " + found.error().message() + ")";
    }
  } else {
    addresses.push_back(host.address());
  }
  std::string opened;
  for (const policy::IpAddress& address : addresses) {
    const policy::AddressClass kind = policy::classify(address);
    if (kind.tier == policy::Tier::kFloor) {
      return Error("preset " + result->name + ": " + host.text() + " resolves to " +
                   address.to_text() + " (" + std::string(kind.what) +
                   "), which no rule can open; name another registry in your own configuration");
    }
    if (kind.tier == policy::Tier::kPublic) continue;
    opened += (opened.empty() ? "" : ",") + address.to_text() + (address.is_v4() ? "/32" : "/128");
  }
  std::string rule = url.rule();
  if (!opened.empty()) rule += "=" + opened;
  if (std::find(result->rules.begin(), result->rules.end(), rule) != result->rules.end()) return {};
  result->rules.push_back(rule);
  result->lines.push_back({"preset", result->name + ": " + std::string(what) + " is " +
                                         url.endpoint.text() + ", from your own configuration" +
                                         note});
  if (!opened.empty()) {
    result->lines.push_back({"preset", result->name + ": " + host.text() +
                                           " is not at a public address; exactly these are opened "
                                           "for it: " +
                                           opened});
  }
  return {};
}

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
