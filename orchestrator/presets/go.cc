#include "orchestrator/presets/go.h"

#include "orchestrator/presets/client_files.h"
#include "orchestrator/presets/ini_text.h"

namespace cofferdam::orchestrator {
namespace {

std::string value_of(const std::map<std::string, std::string>& values, const char* key) {
  const auto found = values.find(key);
  return found == values.end() ? std::string() : found->second;
}

// The list as it goes inside: without user information, and without what is no proxy there.
Result<std::string> add_proxies(std::string_view list, const ResolveHost& resolve,
                                PresetResult* result) {
  std::string carried;
  char separator = ',';
  while (!list.empty()) {
    const std::size_t end = list.find_first_of(",|");
    const std::string_view one = list.substr(0, end);
    const char next = end == std::string_view::npos ? ',' : list[end];
    list = end == std::string_view::npos ? std::string_view() : list.substr(end + 1);
    std::string text(one);
    if (one == "direct") {
      result->hints.push_back(
          "go: GOPROXY falls back to `direct`, which asks the hosts of the modules themselves; "
          "they are not allowed; to allow one: --allow HOST");
    } else if (one.starts_with("file:")) {
      result->hints.push_back("go: " + text + " of GOPROXY is no part of the sandbox");
      continue;
    } else if (one.empty()) {
      continue;
    } else if (one != "off") {
      TRY_ASSIGN(const RegistryUrl url, parse_registry_url(one).context("preset go: GOPROXY"));
      TRY(add_registry(url, "the module proxy", resolve, result));
      text = url.text();
    }
    if (!carried.empty()) carried += separator;
    carried += text;
    separator = next;
  }
  return carried;
}

// GOSUMDB: off | NAME[+KEY] [URL].
Status add_sum_database(const std::string& text, const ResolveHost& resolve, PresetResult* result) {
  const std::vector<std::string> words = words_of(text);
  if (words.empty()) return {};
  if (words[0] == "off") {
    result->env["GOSUMDB"] = "off";
    return {};
  }
  const bool has_url = words.size() > 1;
  const std::string name = words[0].substr(0, words[0].find('+'));
  TRY_ASSIGN(const RegistryUrl url, parse_registry_url(has_url ? words[1] : "https://" + name + "/")
                                        .context("preset go: GOSUMDB"));
  TRY(add_registry(url, "the checksum database", resolve, result));
  result->env["GOSUMDB"] = words[0] + (has_url ? " " + url.text() : "");
  return {};
}

}  // namespace

std::map<std::string, std::string> parse_go_env(std::string_view text) {
  std::map<std::string, std::string> out;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    const std::size_t equals = line.find('=');
    if (line.empty() || line[0] == '#' || equals == std::string_view::npos || equals == 0) continue;
    out[std::string(line.substr(0, equals))] = std::string(line.substr(equals + 1));
  }
  return out;
}

Result<PresetResult> go_preset(const std::map<std::string, std::string>& values,
                               const ResolveHost& resolve) {
  PresetResult result;
  result.name = "go";
  const std::string proxies = value_of(values, "GOPROXY");
  if (proxies.empty()) {
    return Error(
        "preset go: neither your environment, nor your go env file, nor the go.env of your Go "
        "names a GOPROXY; set one with `go env -w GOPROXY=URL`, or say --allow HOST");
  }
  TRY_ASSIGN(result.env["GOPROXY"], add_proxies(proxies, resolve, &result));
  TRY(add_sum_database(value_of(values, "GOSUMDB"), resolve, &result));
  TRY_ASSIGN(const Json data, preset_data(&result));
  for (const Json& name : data.value("carried", Json::array())) {
    const auto variable = name.get<std::string>();
    if (std::string value = value_of(values, variable.c_str()); !value.empty()) {
      result.env[variable] = std::move(value);
    }
  }
  return result;
}

}  // namespace cofferdam::orchestrator
