#include "orchestrator/presets/git.h"

#include <algorithm>

#include "orchestrator/presets/client_files.h"

namespace cofferdam::orchestrator {
namespace {

constexpr std::string_view kUrl = "url.";

// https://me:token@host/… of a configuration becomes https://host/…; the rest is left as it is.
std::string without_user(const std::string& text) {
  const auto url = parse_registry_url(text);
  return url.ok() ? url->text() : std::string();
}

}  // namespace

std::vector<std::string> origins_of_git_config(std::string_view list) {
  constexpr std::string_view kFile = "file:";
  std::vector<std::string> out;
  while (!list.empty()) {
    const std::size_t end = list.find('\0');
    const std::string_view entry = list.substr(0, end);
    list = end == std::string_view::npos ? std::string_view() : list.substr(end + 1);
    if (!entry.starts_with(kFile)) continue;
    std::string file(entry.substr(kFile.size()));
    if (std::find(out.begin(), out.end(), file) == out.end()) out.push_back(std::move(file));
  }
  return out;
}

GitConfig parse_git_config(std::string_view list) {
  GitConfig out;
  while (!list.empty()) {
    const std::size_t end = list.find('\0');
    const std::string_view entry = list.substr(0, end);
    list = end == std::string_view::npos ? std::string_view() : list.substr(end + 1);
    const std::size_t newline = entry.find('\n');
    if (newline == std::string_view::npos) continue;
    const std::string_view key = entry.substr(0, newline);
    const std::string_view value = entry.substr(newline + 1);
    if (key == "http.sslcainfo") out.ca_file = value;
    for (const std::string_view last : {".insteadof", ".pushinsteadof"}) {
      if (!key.starts_with(kUrl) || !key.ends_with(last)) continue;
      if (key.size() <= kUrl.size() + last.size()) continue;
      out.rewrites.push_back(
          {std::string(key.substr(kUrl.size(), key.size() - kUrl.size() - last.size())),
           std::string(value), last == ".pushinsteadof"});
    }
  }
  return out;
}

Result<PresetResult> git_preset(const GitConfig& config, const std::string& certificates,
                                const ResolveHost& resolve) {
  PresetResult result;
  result.name = "git";
  int count = 0;
  for (const GitRewrite& rewrite : config.rewrites) {
    if (!rewrite.base.starts_with("https://") && !rewrite.base.starts_with("http://")) {
      result.hints.push_back("git: your configuration replaces " + rewrite.instead +
                             " by an address that is not "
                             "http; your keys are not inside, so it is not allowed; to allow: "
                             "--allow tcp://HOST:PORT");
      continue;
    }
    TRY_ASSIGN(const RegistryUrl url,
               parse_registry_url(rewrite.base).context("preset git: url.….insteadOf"));
    TRY(add_registry(url, "a host of url.….insteadOf", resolve, &result));
    // What is replaced may hold a password too: `insteadOf` of a URL with a user.
    std::string instead = rewrite.instead;
    if (instead.find('@') != std::string::npos && instead.find("://") != std::string::npos) {
      instead = without_user(instead);
      if (instead.empty()) continue;
    }
    const std::string number = std::to_string(count++);
    result.env["GIT_CONFIG_KEY_" + number] =
        "url." + url.text() + (rewrite.push_only ? ".pushInsteadOf" : ".insteadOf");
    result.env["GIT_CONFIG_VALUE_" + number] = instead;
  }
  if (result.rules.empty()) {
    return Error(
        "preset git: your own git configuration sends git to no host (url.BASE.insteadOf), and the "
        "repository's remotes do not count, for its author chose them; say --allow HOST");
  }
  result.env["GIT_CONFIG_COUNT"] = std::to_string(count);
  TRY_ASSIGN(const Json data, preset_data(&result));
  TRY(carry_certificates(data, certificates, &result));
  return result;
}

}  // namespace cofferdam::orchestrator
