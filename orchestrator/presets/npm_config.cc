#include "orchestrator/presets/npm_config.h"

#include "common/base/json_text.h"

namespace cofferdam::orchestrator {
namespace {

std::string text_of(const Json& config, const char* key) {
  const auto found = config.find(key);
  return found != config.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\"'";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// It becomes the key of a line of an npmrc.
bool is_scope(std::string_view scope) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.~-";
  return scope.size() > 1 && scope.substr(1).find_first_not_of(kAllowed) == std::string_view::npos;
}

}  // namespace

Result<NpmConfig> parse_npm_config(std::string_view text) {
  TRY_ASSIGN(const Json config, parse_json(text).context("npm's configuration"));
  if (!config.is_object()) return Error("npm's configuration: not an object");
  auto registry = parse_registry_url(text_of(config, "registry"));
  if (!registry.ok()) return registry.error().context("npm's configured registry");
  NpmConfig out{std::move(registry).value(), {}, {}, {}, {}, {}};
  for (const auto& [key, value] : config.items()) {
    if (!key.starts_with("@") || !key.ends_with(":registry") || !value.is_string()) continue;
    const std::string scope = key.substr(0, key.size() - std::string_view(":registry").size());
    if (!is_scope(scope)) return Error("npm's configuration: not a scope: " + scope);
    auto url = parse_registry_url(value.get<std::string>());
    if (!url.ok()) return url.error().context("npm's registry of " + scope);
    out.scoped.push_back({scope, std::move(url).value()});
  }
  out.ca_file = text_of(config, "cafile");
  if (const auto ca = config.find("ca"); ca != config.end()) {
    if (ca->is_string()) out.ca.push_back(ca->get<std::string>());
    for (const Json& one : ca->is_array() ? *ca : Json::array()) {
      if (one.is_string()) out.ca.push_back(one.get<std::string>());
    }
  }
  out.node_directory = text_of(config, "nodedir");
  for (const char* key : {"userconfig", "globalconfig"}) {
    if (const std::string file = text_of(config, key); !file.empty()) out.files.push_back(file);
  }
  return out;
}

std::vector<RegistryUrl> registries_of_npmrc(std::string_view text) {
  std::vector<RegistryUrl> out;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = trim(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos || line[0] == '#' || line[0] == ';') continue;
    const std::string_view key = trim(line.substr(0, equals));
    if (key != "registry" && !(key.starts_with("@") && key.ends_with(":registry"))) continue;
    auto url = parse_registry_url(trim(line.substr(equals + 1)));
    if (url.ok()) out.push_back(std::move(url).value());
  }
  return out;
}

std::string certificates_of(std::string_view pem) {
  constexpr std::string_view kBegin = "-----BEGIN CERTIFICATE-----";
  constexpr std::string_view kEnd = "-----END CERTIFICATE-----";
  std::string out;
  for (std::size_t at = pem.find(kBegin); at != std::string_view::npos; at = pem.find(kBegin, at)) {
    const std::size_t end = pem.find(kEnd, at);
    if (end == std::string_view::npos) break;
    out += pem.substr(at, end + kEnd.size() - at);
    out += '\n';
    at = end + kEnd.size();
  }
  return out;
}

}  // namespace cofferdam::orchestrator
