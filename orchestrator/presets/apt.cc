#include "orchestrator/presets/apt.h"

#include <algorithm>
#include <cctype>

#include "orchestrator/presets/client_files.h"
#include "orchestrator/presets/ini_text.h"

namespace cofferdam::orchestrator {
namespace {

void add_once(const std::string& uri, std::vector<std::string>* uris) {
  if (std::find(uris->begin(), uris->end(), uri) == uris->end()) uris->push_back(uri);
}

template <typename Visit>
void for_each_line(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    visit(line);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

}  // namespace

std::vector<std::string> uris_of_list(std::string_view text) {
  std::vector<std::string> uris;
  for_each_line(text, [&](std::string_view line) {
    line = line.substr(0, line.find('#'));
    std::vector<std::string> words = words_of(line);
    if (words.size() < 3 || (words[0] != "deb" && words[0] != "deb-src")) return;
    std::size_t at = 1;
    if (words[at].front() == '[') {
      while (at < words.size() && words[at].back() != ']') ++at;
      ++at;
    }
    if (at < words.size()) add_once(words[at], &uris);
  });
  return uris;
}

std::vector<std::string> uris_of_sources(std::string_view text) {
  std::vector<std::string> uris;
  std::vector<std::string> paragraph;
  bool enabled = true;
  bool in_uris = false;
  const auto finish = [&] {
    for (const std::string& uri : paragraph) {
      if (enabled) add_once(uri, &uris);
    }
    paragraph.clear();
    enabled = true;
    in_uris = false;
  };
  for_each_line(text, [&](std::string_view line) {
    if (!line.empty() && line[0] == '#') return;
    if (words_of(line).empty()) {
      finish();
      return;
    }
    std::string_view value = line;
    if (line[0] != ' ' && line[0] != '\t') {
      const std::size_t colon = line.find(':');
      if (colon == std::string_view::npos) return;
      const std::string field = lower(line.substr(0, colon));
      value = line.substr(colon + 1);
      in_uris = field == "uris";
      if (field == "enabled") {
        const std::vector<std::string> words = words_of(value);
        const std::string said = words.empty() ? "yes" : lower(words[0]);
        enabled = said != "no" && said != "false" && said != "without" && said != "off" &&
                  said != "disable" && said != "0";
      }
    }
    if (!in_uris) return;
    for (std::string& word : words_of(value)) paragraph.push_back(std::move(word));
  });
  finish();
  return uris;
}

Result<PresetResult> apt_preset(const std::vector<std::string>& uris, const ResolveHost& resolve) {
  PresetResult result;
  result.name = "apt";
  for (const std::string& uri : uris) {
    if (uri.starts_with("http://") || uri.starts_with("https://")) {
      TRY_ASSIGN(const RegistryUrl url, parse_registry_url(uri).context("preset apt: " + uri));
      TRY(add_registry(url, "an archive", resolve, &result));
      continue;
    }
    const std::string scheme = uri.substr(0, uri.find(':'));
    if (scheme == "file" || scheme == "copy" || scheme == "cdrom") continue;
    result.hints.push_back("apt: a source by " + scheme + ": is not understood and not allowed");
  }
  if (result.rules.empty()) {
    return Error(
        "preset apt: your source lists in /etc/apt name no archive by http or https; say --allow "
        "HOST");
  }
  TRY_ASSIGN(const Json data, preset_data(&result));
  (void)data;
  result.hints.push_back(
      "apt: an image has source lists of its own; where they name other hosts than yours, allow "
      "those with --allow, or mount your lists");
  return result;
}

}  // namespace cofferdam::orchestrator
