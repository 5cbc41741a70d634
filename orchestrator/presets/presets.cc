#include "orchestrator/presets/presets.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>

#include "common/os/files.h"
#include "common/os/process.h"
#include "common/os/regular_file.h"

namespace cofferdam::orchestrator {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxCaFile = 8U << 20U;
constexpr std::size_t kMaxProjectFile = 256U << 10U;

bool lies_in(const fs::path& path, const fs::path& directory) {
  const fs::path rest = path.lexically_relative(directory);
  return !rest.empty() && *rest.begin() != "..";
}

// The user's PATH without relative entries and without anything of the workspace, which could
// bring its own `npm`.
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

Result<std::string> ask_npm(const PresetQuery& query) {
  const std::vector<fs::path> directories = program_directories(query.workspace);
  fs::path program;
  std::string path;
  for (const fs::path& directory : directories) {
    std::error_code code;
    const fs::path candidate = directory / "npm";
    if (program.empty() && ::access(candidate.c_str(), X_OK) == 0 &&
        !lies_in(fs::canonical(candidate, code), query.workspace)) {
      program = candidate;
    }
    path += (path.empty() ? "" : ":") + directory.string();
  }
  if (program.empty()) {
    return Error("preset npm: no npm on this machine to ask for the registry; say --allow HOST");
  }
  TRY_ASSIGN(const os::TempDir empty, os::TempDir::create(query.state, "ask-"));
  // npm looks upwards for a project; a package.json ends the search here.
  TRY(os::write_file_atomic(empty.path() / "package.json", "{}\n"));
  os::SpawnOptions options;
  options.argv = {program.string(), "config", "ls", "--json"};
  options.env = std::vector<std::string>{"PATH=" + path,
                                         "HOME=" + query.home,
                                         "USER=" + query.user_name,
                                         "LOGNAME=" + query.user_name,
                                         "LC_ALL=C.UTF-8",
                                         "npm_config_update_notifier=false"};
  options.directory = empty.path().string();
  TRY_ASSIGN(const os::CommandOutput output,
             os::run_command(std::move(options), std::chrono::seconds(60))
                 .context("preset npm: npm config ls"));
  if (output.status.shell_status() != 0) {
    return Error("preset npm: `npm config ls --json` failed with status " +
                 std::to_string(output.status.shell_status()) + ": " +
                 output.err.substr(0, output.err.find('\n')));
  }
  return output.out;
}

Result<std::vector<policy::IpAddress>> resolve_host(const policy::HostName& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int failed = ::getaddrinfo(name.text().c_str(), nullptr, &hints, &list);
  if (failed != 0) return Error(::gai_strerror(failed));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::set<policy::IpAddress> found;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family == AF_INET) {
      sockaddr_in address{};
      std::memcpy(&address, entry->ai_addr, sizeof address);
      std::array<std::uint8_t, 4> bytes{};
      std::memcpy(bytes.data(), &address.sin_addr, bytes.size());
      found.insert(policy::IpAddress::from_v4(bytes));
    } else if (entry->ai_family == AF_INET6) {
      sockaddr_in6 address{};
      std::memcpy(&address, entry->ai_addr, sizeof address);
      std::array<std::uint8_t, 16> bytes{};
      std::memcpy(bytes.data(), &address.sin6_addr, bytes.size());
      found.insert(policy::IpAddress::from_v6(bytes));
    }
  }
  if (found.empty()) return Error("no address");
  return std::vector<policy::IpAddress>(found.begin(), found.end());
}

Result<NpmSurroundings> npm_surroundings(const NpmConfig& config, const PresetQuery& query) {
  NpmSurroundings out;
  if (!config.ca_file.empty()) {
    if (lies_in(fs::path(config.ca_file).lexically_normal(), query.workspace)) {
      return Error("preset npm: your configured cafile lies in the workspace: " + config.ca_file);
    }
    TRY_ASSIGN(const std::string pem,
               os::read_file(config.ca_file, kMaxCaFile).context("preset npm: cafile"));
    out.ca_bundle += certificates_of(pem);
  }
  for (const std::string& pem : config.ca) out.ca_bundle += certificates_of(pem);
  out.extra_only = out.ca_bundle.empty();
  const char* extra = std::getenv("NODE_EXTRA_CA_CERTS");
  if (extra != nullptr && extra[0] == '/' && extra != config.ca_file &&
      !lies_in(fs::path(extra).lexically_normal(), query.workspace)) {
    if (auto pem = os::read_file(extra, kMaxCaFile); pem.ok()) {
      out.ca_bundle += certificates_of(*pem);
    }
  }
  auto project = os::read_regular_file(query.workspace / ".npmrc", kMaxProjectFile);
  if (project.ok()) out.project_npmrc = std::move(project).value();
  return out;
}

}  // namespace

Result<PresetResult> discover_preset(std::string_view name, const PresetQuery& query) {
  if (name != "npm") return Error("preset " + std::string(name) + ": not in this version");
  TRY_ASSIGN(const std::string json, ask_npm(query));
  TRY_ASSIGN(const NpmConfig config, parse_npm_config(json).context("preset npm"));
  TRY_ASSIGN(const NpmSurroundings surroundings, npm_surroundings(config, query));
  return npm_preset(config, surroundings, resolve_host);
}

}  // namespace cofferdam::orchestrator
