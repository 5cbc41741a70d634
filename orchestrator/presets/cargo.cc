#include "orchestrator/presets/cargo.h"

#include <algorithm>
#include <optional>

#include "orchestrator/presets/client_files.h"
#include "orchestrator/presets/toml_texts.h"

namespace cofferdam::orchestrator {
namespace {

constexpr std::string_view kSparse = "sparse+";
constexpr std::string_view kBuiltIn = "crates-io";
constexpr const char* kInside = "/.cargo/config.toml";  // cargo looks in every directory above

using Texts = std::map<TomlPath, std::string>;

std::string text_at(const Texts& texts, const TomlPath& path) {
  const auto found = texts.find(path);
  return found == texts.end() ? std::string() : found->second;
}

// It becomes a key of the file inside.
bool is_plain_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

Result<CargoRegistry> make_registry(const std::string& name, std::string_view index) {
  if (!is_plain_name(name)) return Error("not the name of a registry: " + name);
  const bool sparse = index.starts_with(kSparse);
  if (sparse) index.remove_prefix(kSparse.size());
  TRY_ASSIGN(RegistryUrl url, parse_registry_url(index).context("cargo's registry " + name));
  // It goes into a quoted text of the file inside.
  if (url.text().find('"') != std::string::npos) return Error("cargo's registry " + name);
  return CargoRegistry{name, std::move(url), sparse};
}

// What the built-in registry is replaced by, after any number of further replacements; nothing
// where it is not, or by a directory of this machine.
Result<std::optional<CargoRegistry>> find_replacement(const Texts& texts) {
  std::string name(kBuiltIn);
  for (int steps = 0; steps < 16; ++steps) {
    const std::string next = text_at(texts, {"source", name, "replace-with"});
    if (next.empty()) break;
    name = next;
  }
  if (name == kBuiltIn) return std::optional<CargoRegistry>();
  std::string index = text_at(texts, {"source", name, "registry"});
  if (index.empty()) index = text_at(texts, {"registries", name, "index"});
  if (index.empty()) {
    return Error("cargo's source " + name +
                 ", which replaces the built-in registry, is no registry by http or https");
  }
  TRY_ASSIGN(CargoRegistry registry, make_registry(name, index));
  return std::optional<CargoRegistry>(std::move(registry));
}

std::string index_text(const CargoRegistry& registry) {
  return "\"" + std::string(registry.sparse ? kSparse : "") + registry.url.text() + "\"\n";
}

}  // namespace

Result<CargoConfig> parse_cargo_config(std::string_view text,
                                       const std::map<std::string, std::string>& variables) {
  TRY_ASSIGN(const Texts texts, read_toml_texts(text).context("cargo's config.toml"));
  CargoConfig out;
  TRY_ASSIGN(const auto replacement, find_replacement(texts));
  if (replacement) out.replacement.push_back(*replacement);
  for (const auto& [path, index] : texts) {
    if (path.size() != 3 || path[0] != "registries" || path[2] != "index") continue;
    TRY_ASSIGN(CargoRegistry registry, make_registry(path[1], index));
    out.registries.push_back(std::move(registry));
  }
  constexpr std::string_view kPrefix = "CARGO_REGISTRIES_";
  constexpr std::string_view kSuffix = "_INDEX";
  for (const auto& [variable, index] : variables) {
    if (!variable.starts_with(kPrefix) || !variable.ends_with(kSuffix) || index.empty()) continue;
    if (variable.size() <= kPrefix.size() + kSuffix.size()) continue;
    std::string name =
        variable.substr(kPrefix.size(), variable.size() - kPrefix.size() - kSuffix.size());
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
      return c == '_' ? '-' : static_cast<char>(std::tolower(c));
    });
    TRY_ASSIGN(CargoRegistry registry, make_registry(name, index));
    std::erase_if(out.registries, [&](const CargoRegistry& have) { return have.name == name; });
    out.registries.push_back(std::move(registry));
  }
  out.ca_file = text_at(texts, {"http", "cainfo"});
  return out;
}

Result<PresetResult> cargo_preset(const CargoConfig& config, const std::string& certificates,
                                  const ResolveHost& resolve) {
  PresetResult result;
  result.name = "cargo";
  if (config.replacement.empty() && config.registries.empty()) {
    return Error(
        "preset cargo: your cargo configuration names no registry, and cargo does not tell its "
        "built-in one; name a mirror in ~/.cargo/config.toml ([source.crates-io] replace-with), or "
        "say --allow HOST for its index and for its downloads");
  }
  std::string& file = result.files[kInside];
  if (config.replacement.empty()) {
    result.hints.push_back(
        "cargo: its built-in registry is not replaced in your configuration and is not allowed");
  }
  for (const CargoRegistry& registry : config.replacement) {
    TRY(add_registry(registry.url, "the registry", resolve, &result));
    const bool named =
        std::any_of(config.registries.begin(), config.registries.end(),
                    [&](const CargoRegistry& other) { return other.name == registry.name; });
    file += "[source.crates-io]\nreplace-with = \"" + registry.name + "\"\n";
    if (!named) file += "[source." + registry.name + "]\nregistry = " + index_text(registry);
  }
  for (const CargoRegistry& registry : config.registries) {
    TRY(add_registry(registry.url, "the registry " + registry.name, resolve, &result));
    file += "[registries." + registry.name + "]\nindex = " + index_text(registry);
  }
  result.hints.push_back(
      "cargo: a registry's index may name another host for its downloads; if it does: --allow "
      "HOST");
  TRY_ASSIGN(const Json data, preset_data(&result));
  TRY(carry_certificates(data, certificates, &result));
  return result;
}

}  // namespace cofferdam::orchestrator
