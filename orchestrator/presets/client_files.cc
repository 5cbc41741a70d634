#include "orchestrator/presets/client_files.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "common/os/files.h"
#include "common/os/process.h"
#include "common/os/regular_file.h"
#include "orchestrator/manifest/embedded.h"
#include "orchestrator/presets/npm_config.h"

namespace cofferdam::orchestrator {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxFile = 1U << 20U;
constexpr std::size_t kMaxCaFile = 8U << 20U;

bool lies_in(const fs::path& path, const fs::path& directory) {
  const fs::path rest = path.lexically_relative(directory);
  return !rest.empty() && *rest.begin() != "..";
}

// The user's PATH without relative entries and without anything of the workspace, which could
// bring its own clients.
std::vector<fs::path> program_directories(const fs::path& workspace) {
  std::vector<fs::path> out;
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path;
  while (!rest.empty()) {
    const std::size_t colon = rest.find(':');
    const fs::path entry = rest.substr(0, colon);
    rest = colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
    std::error_code code;
    const fs::path real = fs::canonical(entry, code);
    if (code || !entry.is_absolute() || lies_in(real, workspace)) continue;
    out.push_back(entry);
  }
  return out;
}

// Whether the file, by its name or through a link, is the workspace's.
bool is_of_workspace(const fs::path& file, const PresetQuery& query) {
  std::error_code code;
  const fs::path real = fs::weakly_canonical(file, code);
  return lies_in(file.lexically_normal(), query.workspace) ||
         (!code && lies_in(real, query.workspace));
}

}  // namespace

std::optional<std::string> own_variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || value[0] == '\0') return std::nullopt;
  return std::string(value);
}

fs::path config_home(const PresetQuery& query) {
  const auto set = own_variable("XDG_CONFIG_HOME");
  return set && set->front() == '/' ? fs::path(*set) : fs::path(query.home) / ".config";
}

Result<std::optional<std::string>> read_own_file(const fs::path& file, const PresetQuery& query) {
  std::error_code code;
  if (!fs::exists(file, code)) return std::optional<std::string>();
  if (fs::is_character_file(file, code)) return std::optional<std::string>("");  // /dev/null
  if (is_of_workspace(file, query)) {
    return Error(file.string() +
                 " lies in the workspace, whose author must not choose what is allowed; move it, "
                 "or say --allow HOST");
  }
  TRY_ASSIGN(std::string text, os::read_regular_file(file, kMaxFile));
  return std::optional<std::string>(std::move(text));
}

Result<std::string> read_certificates(const fs::path& file, const PresetQuery& query) {
  if (is_of_workspace(file, query)) {
    return Error("your configured certificates lie in the workspace: " + file.string());
  }
  TRY_ASSIGN(const std::string pem, os::read_file(file, kMaxCaFile));
  return certificates_of(pem);
}

fs::path find_client(std::string_view program, const PresetQuery& query) {
  for (const fs::path& directory : program_directories(query.workspace)) {
    std::error_code code;
    const fs::path candidate = directory / program;
    if (::access(candidate.c_str(), X_OK) == 0 &&
        !lies_in(fs::canonical(candidate, code), query.workspace)) {
      return candidate;
    }
  }
  return {};
}

Result<std::string> ask_client(const Question& question, const PresetQuery& query) {
  std::string path;
  for (const fs::path& directory : program_directories(query.workspace)) {
    path += (path.empty() ? "" : ":") + directory.string();
  }
  TRY_ASSIGN(const os::TempDir empty, os::TempDir::create(query.state, "ask-"));
  if (!question.beside.empty()) {
    TRY(os::write_file_atomic(empty.path() / question.beside, "{}\n"));
  }
  os::SpawnOptions options;
  options.argv = question.argv;
  options.env =
      std::vector<std::string>{"PATH=" + path, "HOME=" + query.home, "USER=" + query.user_name,
                               "LOGNAME=" + query.user_name, "LC_ALL=C.UTF-8"};
  // What is above our directory is no project of anybody's.
  options.env->push_back("GIT_CEILING_DIRECTORIES=" + empty.path().string());
  for (const std::string& variable : question.more) options.env->push_back(variable);
  options.directory = empty.path().string();
  std::string shown;
  for (const std::string& word : question.argv) {
    shown += shown.empty() ? fs::path(word).filename().string() : " " + word;
  }
  TRY_ASSIGN(const os::CommandOutput output,
             os::run_command(std::move(options), std::chrono::seconds(60)).context(shown));
  if (output.status.shell_status() != 0) {
    return Error("`" + shown + "` failed with status " +
                 std::to_string(output.status.shell_status()) + ": " +
                 output.err.substr(0, output.err.find('\n')));
  }
  return output.out;
}

Result<Json> preset_data(PresetResult* result) {
  const std::string file = "presets/" + result->name + ".json";
  TRY_ASSIGN(Json data, parse_json(embedded_preset(result->name)).context(file));
  try {
    for (const auto& [name, value] : data.at("set").items()) {
      result->env[name] = value.get<std::string>();
    }
  } catch (const Json::exception& error) {
    return Error(error.what()).context(file);
  }
  return data;
}

Status carry_certificates(const Json& data, const std::string& certificates, PresetResult* result) {
  if (certificates.empty()) return {};
  const std::string inside = "/etc/cofferdam/" + result->name + "-ca.pem";
  result->files[inside] = certificates;
  try {
    for (const Json& variable : data.at("ca_file_variables")) {
      result->env[variable.get<std::string>()] = inside;
    }
  } catch (const Json::exception& error) {
    return Error(error.what()).context("presets/" + result->name + ".json");
  }
  result->lines.push_back(
      {"preset",
       result->name + ": your configured certificates are copied to " + inside + " inside"});
  return {};
}

void hint_of_repository(const RegistryUrl& url, std::string_view file, PresetResult* result) {
  const std::string rule = url.rule();
  const bool allowed = std::any_of(
      result->rules.begin(), result->rules.end(),
      [&](const std::string& have) { return have == rule || have.starts_with(rule + "="); });
  if (allowed) return;
  const std::string host = url.endpoint.host.text();
  const bool usual = url.tls && url.endpoint.port == 443;
  std::string hint = "the repository's own " + std::string(file) + " names " + host +
                     "; it is not allowed; to allow: --allow " + (usual ? host : rule);
  const auto& hints = result->hints;
  if (std::find(hints.begin(), hints.end(), hint) == hints.end()) {
    result->hints.push_back(std::move(hint));
  }
}

}  // namespace cofferdam::orchestrator
