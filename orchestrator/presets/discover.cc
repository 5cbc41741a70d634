// Where each client's configuration is found.
#include "orchestrator/presets/discover.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "common/os/regular_file.h"
#include "orchestrator/presets/apt.h"
#include "orchestrator/presets/cargo.h"
#include "orchestrator/presets/client_files.h"
#include "orchestrator/presets/git.h"
#include "orchestrator/presets/go.h"
#include "orchestrator/presets/pip.h"

namespace cofferdam::orchestrator {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxProjectFile = 256U << 10U;

// A file of the repository: it only makes hints.
std::string project_text(const PresetQuery& query, const char* name) {
  auto text = os::read_regular_file(query.workspace / name, kMaxProjectFile);
  return text.ok() ? std::move(text).value() : std::string();
}

std::map<std::string, std::string> variables_with(std::string_view prefix) {
  std::map<std::string, std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (!text.starts_with(prefix) || equals == std::string_view::npos) continue;
    if (equals + 1 < text.size()) out.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

Status add_text(const fs::path& file, const PresetQuery& query, std::vector<std::string>* texts) {
  TRY_ASSIGN(auto text, read_own_file(file, query));
  if (text) texts->push_back(std::move(*text));
  return {};
}

// --- npm

Result<NpmSurroundings> npm_surroundings(const NpmConfig& config, const PresetQuery& query) {
  NpmSurroundings out;
  if (!config.ca_file.empty()) {
    TRY_ASSIGN(out.ca_bundle,
               read_certificates(config.ca_file, query).context("preset npm: cafile"));
  }
  for (const std::string& pem : config.ca) out.ca_bundle += certificates_of(pem);
  out.extra_only = out.ca_bundle.empty();
  const auto extra = own_variable("NODE_EXTRA_CA_CERTS");
  if (extra && extra->front() == '/' && *extra != config.ca_file) {
    if (auto pem = read_certificates(*extra, query); pem.ok()) out.ca_bundle += *pem;
  }
  out.project_npmrc = project_text(query, ".npmrc");
  return out;
}

// --- pip

// Which pip.conf count, in pip's own order. That of a virtual environment does not: it usually lies
// in the workspace.
Result<std::vector<std::string>> pip_files(const PresetQuery& query) {
  std::vector<std::string> texts;
  TRY(add_text("/etc/xdg/pip/pip.conf", query, &texts));
  TRY(add_text("/etc/pip.conf", query, &texts));
  const auto named = own_variable("PIP_CONFIG_FILE");
  std::error_code code;
  if (!named || !fs::exists(*named, code)) {
    TRY(add_text(fs::path(query.home) / ".pip/pip.conf", query, &texts));
    TRY(add_text(config_home(query) / "pip/pip.conf", query, &texts));
  } else if (*named == "/dev/null") {
    texts.clear();
  } else {
    TRY(add_text(*named, query, &texts));
  }
  return texts;
}

// pip's own default, by asking its modules; nothing where there is no pip to ask.
std::optional<PipDefault> ask_pip(const PresetQuery& query) {
  const fs::path python = find_client("python3", query);
  if (python.empty()) return std::nullopt;
  Question question;
  question.argv = {python.string(), "-I", "-c",
                   "from pip._internal.models.index import PyPI\n"
                   "print(PyPI.simple_url)\nprint(PyPI.file_storage_domain)"};
  const auto said = ask_client(question, query);
  if (!said.ok()) return std::nullopt;
  auto parsed = parse_pip_default(*said);
  return parsed.ok() ? std::optional(std::move(parsed).value()) : std::nullopt;
}

// --- go

fs::path go_root(const PresetQuery& query) {
  if (const auto root = own_variable("GOROOT")) return *root;
  std::error_code code;
  const fs::path program = find_client("go", query);
  if (program.empty()) return {};
  return fs::canonical(program, code).parent_path().parent_path();
}

}  // namespace

Result<PresetResult> discover_npm(const PresetQuery& query, const ResolveHost& resolve) {
  const fs::path npm = find_client("npm", query);
  if (npm.empty()) {
    return Error("preset npm: no npm on this machine to ask for the registry; say --allow HOST");
  }
  // npm looks upwards for a project; a package.json ends the search.
  const Question question{{npm.string(), "config", "ls", "--json"},
                          {"npm_config_update_notifier=false"},
                          "package.json"};
  TRY_ASSIGN(const std::string json, ask_client(question, query).context("preset npm"));
  TRY_ASSIGN(const NpmConfig config, parse_npm_config(json).context("preset npm"));
  // Of the workspace, or a link into it: it would choose its own allowlist.
  for (const std::string& file : config.files) {
    TRY(read_own_file(file, query).context("preset npm"));
  }
  TRY_ASSIGN(const NpmSurroundings surroundings, npm_surroundings(config, query));
  return npm_preset(config, surroundings, resolve);
}

Result<PresetResult> discover_pip(const PresetQuery& query, const ResolveHost& resolve) {
  TRY_ASSIGN(const std::vector<std::string> files, pip_files(query).context("preset pip"));
  TRY_ASSIGN(const PipConfig config,
             parse_pip_config(files, variables_with("PIP_")).context("preset pip"));
  PipSurroundings surroundings;
  surroundings.builtin = ask_pip(query);
  if (!config.ca_file.empty()) {
    TRY_ASSIGN(surroundings.certificates,
               read_certificates(config.ca_file, query).context("preset pip: cert"));
  }
  surroundings.project_requirements = project_text(query, "requirements.txt");
  return pip_preset(config, surroundings, resolve);
}

Result<PresetResult> discover_cargo(const PresetQuery& query, const ResolveHost& resolve) {
  const auto set = own_variable("CARGO_HOME");
  const fs::path home =
      set && set->front() == '/' ? fs::path(*set) : fs::path(query.home) / ".cargo";
  std::vector<std::string> texts;
  TRY(add_text(home / "config", query, &texts).context("preset cargo"));
  if (texts.empty()) TRY(add_text(home / "config.toml", query, &texts).context("preset cargo"));
  TRY_ASSIGN(const CargoConfig config,
             parse_cargo_config(texts.empty() ? "" : texts[0], variables_with("CARGO_REGISTRIES_"))
                 .context("preset cargo"));
  std::string certificates;
  const auto ca_file = own_variable("CARGO_HTTP_CAINFO");
  if (ca_file || !config.ca_file.empty()) {
    const fs::path file = ca_file ? fs::path(*ca_file) : home / config.ca_file;
    TRY_ASSIGN(certificates, read_certificates(file, query).context("preset cargo: cainfo"));
  }
  TRY_ASSIGN(PresetResult result, cargo_preset(config, certificates, resolve));
  if (const auto own = parse_cargo_config(project_text(query, ".cargo/config.toml"), {});
      own.ok()) {
    for (const auto* list : {&own->replacement, &own->registries}) {
      for (const CargoRegistry& registry : *list) {
        hint_of_repository(registry.url, ".cargo/config.toml", &result);
      }
    }
  }
  return result;
}

Result<PresetResult> discover_go(const PresetQuery& query, const ResolveHost& resolve) {
  std::vector<std::string> texts;
  if (const fs::path root = go_root(query); !root.empty()) {
    TRY(add_text(root / "go.env", query, &texts).context("preset go"));
  }
  const auto named = own_variable("GOENV");
  if (named != "off") {
    const fs::path file = named ? fs::path(*named) : config_home(query) / "go/env";
    TRY(add_text(file, query, &texts).context("preset go"));
  }
  std::map<std::string, std::string> values;
  for (const std::string& text : texts) {
    for (const auto& [key, value] : parse_go_env(text)) {
      if (!value.empty()) values[key] = value;
    }
  }
  for (const auto& [key, value] : variables_with("GO")) values[key] = value;
  return go_preset(values, resolve);
}

Result<PresetResult> discover_apt(const fs::path& directory, const PresetQuery& query,
                                  const ResolveHost& resolve) {
  std::vector<fs::path> files{directory / "sources.list"};
  std::error_code code;
  for (fs::directory_iterator entry(directory / "sources.list.d", code), end; !code && entry != end;
       entry.increment(code)) {
    files.push_back(entry->path());
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> uris;
  for (const fs::path& file : files) {
    const bool paragraphs = file.extension() == ".sources";
    if (!paragraphs && file.extension() != ".list") continue;
    TRY_ASSIGN(const auto text, read_own_file(file, query).context("preset apt"));
    if (!text) continue;
    for (std::string& uri : paragraphs ? uris_of_sources(*text) : uris_of_list(*text)) {
      uris.push_back(std::move(uri));
    }
  }
  return apt_preset(uris, resolve);
}

Result<PresetResult> discover_git(const PresetQuery& query, const ResolveHost& resolve) {
  const fs::path git = find_client("git", query);
  if (git.empty()) return Error("preset git: no git on this machine to ask; say --allow HOST");
  Question question{
      {git.string(), "config", "--list", "--includes", "--show-origin", "-z"}, {}, {}};
  if (const auto config = own_variable("XDG_CONFIG_HOME")) {
    question.more.push_back("XDG_CONFIG_HOME=" + *config);
  }
  if (const auto file = own_variable("GIT_CONFIG_GLOBAL")) {
    TRY(read_own_file(*file, query).context("preset git"));
    question.more.push_back("GIT_CONFIG_GLOBAL=" + *file);
  }
  TRY_ASSIGN(const std::string list, ask_client(question, query).context("preset git"));
  for (const std::string& file : origins_of_git_config(list)) {
    TRY(read_own_file(file, query).context("preset git"));
  }
  const GitConfig config = parse_git_config(list);
  std::string certificates;
  if (!config.ca_file.empty()) {
    const fs::path file = config.ca_file.starts_with("~/")
                              ? fs::path(query.home) / config.ca_file.substr(2)
                              : fs::path(config.ca_file);
    TRY_ASSIGN(certificates, read_certificates(file, query).context("preset git: http.sslCAInfo"));
  }
  return git_preset(config, certificates, resolve);
}

}  // namespace cofferdam::orchestrator
