#include "orchestrator/given_secrets.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "common/os/process.h"
#include "common/os/regular_file.h"
#include "orchestrator/manifest/check_value.h"
#include "orchestrator/presets/client_files.h"
#include "orchestrator/secrets/known_secret.h"

namespace cofferdam::orchestrator {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxSecret = 64U << 10U;
constexpr std::chrono::seconds kCommandPatience{30};

bool lies_in(const fs::path& path, const fs::path& directory) {
  const fs::path rest = path.lexically_relative(directory);
  return !rest.empty() && *rest.begin() != "..";
}

Result<std::string> from_file(const std::string& name, const SecretQuery& query) {
  std::error_code code;
  const fs::path real = fs::canonical(name, code);
  if (code) return Error::from_errno(name, code.value());
  const bool mounted = std::any_of(query.shown.begin(), query.shown.end(),
                                   [&](const fs::path& source) { return lies_in(real, source); });
  if (mounted) return Error(name + " lies in a mount, where the workload could read it; move it");
  if (lies_in(real, query.workspace)) {
    return Error(name + " lies in the workspace, where the workload could read it; move it");
  }
  struct stat st {};
  if (::stat(real.c_str(), &st) != 0) return Error::from_errno(name);
  if ((st.st_mode & 022U) != 0 || (st.st_uid != 0 && st.st_uid != ::geteuid())) {
    return Error(name + ": others may write it. Remedy: chmod go-w " + name);
  }
  return os::read_regular_file(real, kMaxSecret);
}

Result<std::string> from_command(const std::vector<std::string>& words, const fs::path& workspace) {
  os::SpawnOptions options;
  options.argv = words;
  if (words[0].find('/') == std::string::npos) {
    PresetQuery query;
    query.workspace = workspace;
    const fs::path program = find_client(words[0], query);
    if (program.empty()) return Error("no program " + words[0] + " in your PATH");
    options.argv[0] = program.string();
  } else if (fs::path(words[0]).is_relative()) {
    return Error(words[0] + ": name it absolutely, or by its name alone");
  }
  options.directory = "/";
  TRY_ASSIGN(os::CommandOutput output,
             os::run_command(std::move(options), kCommandPatience).context(words[0]));
  if (output.status.shell_status() != 0) {
    return Error(words[0] + " ended with status " + std::to_string(output.status.shell_status()));
  }
  if (output.out.size() > kMaxSecret) return Error("its value is larger than 64 KiB");
  return std::move(output.out);
}

Result<std::string> read_value(const SecretRule& rule, const SecretQuery& query) {
  if (!rule.file.empty()) return from_file(rule.file, query);
  if (!rule.command.empty()) return from_command(rule.command, query.workspace);
  const char* value = std::getenv(rule.env.c_str());
  if (value == nullptr) return Error("you have no variable " + rule.env);
  return std::string(value);
}

Result<SecretPlan> read_secret(const SecretRule& rule, const SecretQuery& query) {
  TRY_ASSIGN(std::string value, read_value(rule, query));
  if (value.ends_with('\n')) value.pop_back();
  if (value.ends_with('\r')) value.pop_back();
  if (value.size() < secrets::kLeastSecret) {
    return Error("it has fewer than " + std::to_string(secrets::kLeastSecret) +
                 " bytes: it could not be kept out of the output");
  }
  if (!rule.as_file) {
    if (auto fault = variable_fault(rule.name, value)) return Error(*fault);
  }
  return SecretPlan{rule.name, std::move(value), rule.as_file, rule.commands};
}

}  // namespace

Result<std::vector<SecretPlan>> read_secrets(const std::vector<SecretRule>& rules,
                                             const SecretQuery& query) {
  std::vector<SecretPlan> out;
  for (const SecretRule& rule : rules) {
    const bool wanted =
        query.all ||
        std::any_of(query.programs.begin(), query.programs.end(), [&](const std::string& program) {
          return std::find(rule.commands.begin(), rule.commands.end(), program) !=
                 rule.commands.end();
        });
    if (!wanted) continue;
    auto secret = read_secret(rule, query);
    if (!secret.ok()) return secret.error().context("secret " + rule.name);
    out.push_back(std::move(secret).value());
  }
  return out;
}

}  // namespace cofferdam::orchestrator
