#include "orchestrator/presets/pip.h"

#include <algorithm>

#include "orchestrator/presets/client_files.h"
#include "orchestrator/presets/ini_text.h"

namespace cofferdam::orchestrator {
namespace {

// The value that `pip install` would use: its variable, its own section, the global one.
std::string value_of(const std::map<std::string, std::string>& merged,
                     const std::map<std::string, std::string>& variables, const std::string& key) {
  std::string variable = "PIP_";
  for (const char c : key) {
    variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  if (const auto found = variables.find(variable); found != variables.end()) return found->second;
  for (const char* section : {"install.", "global."}) {
    if (const auto found = merged.find(section + key); found != merged.end()) return found->second;
  }
  return {};
}

bool is_yes(const std::string& text) {
  return text == "1" || text == "true" || text == "True" || text == "yes" || text == "on";
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

bool is_trusted(const PipConfig& config, const RegistryUrl& url) {
  return std::any_of(config.trusted.begin(), config.trusted.end(), [&](const std::string& entry) {
    return entry == url.endpoint.host.text() || entry == url.endpoint.text();
  });
}

Status add_indexes(const PipConfig& config, const PipSurroundings& surroundings,
                   const ResolveHost& resolve, PresetResult* result, std::string* index_text) {
  const auto& builtin = surroundings.builtin;
  if (config.index) {
    TRY(add_registry(*config.index, "the index", resolve, result));
    *index_text = config.index->text();
  } else if (!config.no_index) {
    if (!builtin) {
      return Error(
          "preset pip: your pip configuration names no index, and no pip on this machine can be "
          "asked for its own; name one with `pip config set global.index-url URL`, or say --allow "
          "HOST");
    }
    TRY(add_registry(builtin->index, "the index", resolve, result, "pip's own default"));
    *index_text = builtin->index.text();
  }
  const RegistryUrl* used = config.index ? &*config.index : builtin ? &builtin->index : nullptr;
  if (builtin && used != nullptr && !config.no_index && !builtin->file_host.empty() &&
      used->endpoint == builtin->index.endpoint) {
    TRY_ASSIGN(const RegistryUrl files, parse_registry_url("https://" + builtin->file_host + "/"));
    TRY(add_registry(files, "the host of the files", resolve, result, "pip's own default"));
  }
  for (const RegistryUrl& url : config.extra) {
    TRY(add_registry(url, "a further index", resolve, result));
  }
  return {};
}

}  // namespace

Result<PipConfig> parse_pip_config(const std::vector<std::string>& files,
                                   const std::map<std::string, std::string>& variables) {
  std::map<std::string, std::string> merged;
  for (const std::string& text : files) {
    TRY_ASSIGN(const auto values, parse_ini(text).context("pip.conf"));
    for (const auto& [key, value] : values) merged[key] = value;
  }
  PipConfig out;
  if (const std::string url = value_of(merged, variables, "index-url"); !url.empty()) {
    TRY_ASSIGN(out.index, parse_registry_url(url).context("pip's index-url"));
  }
  for (const std::string& url : words_of(value_of(merged, variables, "extra-index-url"))) {
    auto parsed = parse_registry_url(url);
    if (!parsed.ok()) return parsed.error().context("pip's extra-index-url");
    out.extra.push_back(std::move(parsed).value());
  }
  for (const std::string& url : words_of(value_of(merged, variables, "find-links"))) {
    if (!url.starts_with("http://") && !url.starts_with("https://")) continue;
    auto parsed = parse_registry_url(url);
    if (!parsed.ok()) return parsed.error().context("pip's find-links");
    out.extra.push_back(std::move(parsed).value());
  }
  out.trusted = words_of(value_of(merged, variables, "trusted-host"));
  out.no_index = is_yes(value_of(merged, variables, "no-index"));
  out.ca_file = value_of(merged, variables, "cert");
  return out;
}

Result<PipDefault> parse_pip_default(std::string_view text) {
  const std::vector<std::string> words = words_of(text);
  if (words.size() != 2) return Error("pip's own default was not understood");
  TRY_ASSIGN(RegistryUrl index, parse_registry_url(words[0]));
  return PipDefault{std::move(index), words[1]};
}

std::vector<RegistryUrl> indexes_of_requirements(std::string_view text) {
  std::vector<RegistryUrl> out;
  std::string spaced(text);
  std::replace(spaced.begin(), spaced.end(), '=', ' ');
  const std::vector<std::string> words = words_of(spaced);
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] != "-i" && words[i] != "--index-url" && words[i] != "--extra-index-url") continue;
    if (auto url = parse_registry_url(words[i + 1]); url.ok()) {
      out.push_back(std::move(url).value());
    }
  }
  return out;
}

Result<PresetResult> pip_preset(const PipConfig& config, const PipSurroundings& surroundings,
                                const ResolveHost& resolve) {
  PresetResult result;
  result.name = "pip";
  std::string index;
  TRY(add_indexes(config, surroundings, resolve, &result, &index));
  TRY_ASSIGN(const Json data, preset_data(&result));
  std::vector<std::string> extra;
  std::vector<std::string> trusted;
  for (const RegistryUrl& url : config.extra) extra.push_back(url.text());
  if (config.index && is_trusted(config, *config.index)) {
    trusted.push_back(config.index->endpoint.host.text());
  }
  for (const RegistryUrl& url : config.extra) {
    if (is_trusted(config, url)) trusted.push_back(url.endpoint.host.text());
  }
  if (!index.empty()) result.env[data.value("index_variable", "")] = index;
  if (!extra.empty()) result.env[data.value("extra_index_variable", "")] = joined(extra);
  if (!trusted.empty()) result.env[data.value("trusted_host_variable", "")] = joined(trusted);
  TRY(carry_certificates(data, surroundings.certificates, &result));
  for (const RegistryUrl& url : indexes_of_requirements(surroundings.project_requirements)) {
    hint_of_repository(url, "requirements.txt", &result);
  }
  return result;
}

}  // namespace cofferdam::orchestrator
