#include "orchestrator/host_facts.h"

#include <fcntl.h>
#include <pwd.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>

#include "common/os/files.h"
#include "common/os/host_probes.h"
#include "common/os/process.h"
#include "orchestrator/engine/docker/client.h"
#include "orchestrator/engine/docker/daemon_address.h"

namespace cofferdam::orchestrator {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

constexpr std::array kBwrapPaths = {"/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap"};

void for_each_line(const std::string& text, const std::function<void(std::string_view)>& visit) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    visit(std::string_view(text).substr(at, end - at));
    at = end + 1;
  }
}

std::vector<std::string_view> split(std::string_view line, char separator) {
  std::vector<std::string_view> fields;
  for (;;) {
    const std::size_t at = line.find(separator);
    fields.push_back(line.substr(0, at));
    if (at == std::string_view::npos) return fields;
    line.remove_prefix(at + 1);
  }
}

std::optional<std::uint32_t> number(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string first_line_of(const fs::path& file) {
  auto text = os::read_file(file, 1U << 20U);
  if (!text.ok()) return "";
  return text->substr(0, text->find('\n'));
}

Status probe_kernel(HostFacts* facts) {
  TRY_ASSIGN(const std::vector<os::ProbeResult> results, os::probe_sandbox_kernel());
  for (const os::ProbeResult& result : results) {
    Probe probe;
    probe.works = result.error_number == 0;
    if (!probe.works) probe.detail = result.step + ": " + std::strerror(result.error_number);
    if (result.name == "user_namespaces") facts->user_namespaces = probe;
    if (result.name == "namespaces") facts->namespaces = probe;
    if (result.name == "fuse") facts->fuse = probe;
    if (result.name == "nftables_nat") facts->nftables_nat = probe;
  }
  return {};
}

void find_bwrap(HostFacts* facts) {
  for (const char* path : kBwrapPaths) {
    if (::access(path, X_OK) != 0) continue;
    os::SpawnOptions options;
    options.argv = {path, "--version"};
    options.env = std::vector<std::string>{};
    auto output = os::run_command(std::move(options), seconds(10));
    if (!output.ok() || output->status.shell_status() != 0) continue;
    // "bubblewrap 0.8.0"
    const std::string version = output->out.substr(output->out.find(' ') + 1);
    const auto [major, minor] = kernel_version(version);
    facts->bwrap_path = path;
    facts->bwrap.works = major > 0 || minor >= 8;
    facts->bwrap.detail = version.substr(0, version.find('\n')) + " at " + path;
    return;
  }
  facts->bwrap.detail = "not found";
}

void find_cgroups(HostFacts* facts) {
  CgroupFacts& cgroups = facts->cgroups;
  const fs::path root = "/sys/fs/cgroup";
  constexpr std::array kWanted = {"pids", "memory", "cpu"};
  if (::access((root / "cgroup.controllers").c_str(), R_OK) == 0) {
    cgroups.version = 2;
    fs::path own = root;
    auto membership = os::read_file("/proc/self/cgroup", 1U << 20U);
    if (membership.ok()) {
      for_each_line(*membership, [&](std::string_view line) {
        if (line.starts_with("0::/")) own = root / line.substr(4);
      });
    }
    const bool writable = ::access(own.c_str(), W_OK) == 0 &&
                          ::access((own / "cgroup.subtree_control").c_str(), W_OK) == 0;
    const std::string line = first_line_of(own / "cgroup.controllers");
    for (const std::string_view have : split(line, ' ')) {
      for (const char* wanted : kWanted) {
        if (writable && have == wanted) cgroups.controllers.emplace_back(wanted);
      }
    }
    cgroups.detail = "v2, " + own.string() + (writable ? "" : " not delegated to this user");
    return;
  }
  for (const char* wanted : kWanted) {
    std::error_code code;
    if (!fs::exists(root / wanted / "cgroup.procs", code)) continue;
    cgroups.version = 1;
    if (::access((root / wanted).c_str(), W_OK) == 0) cgroups.controllers.emplace_back(wanted);
  }
  cgroups.detail = cgroups.version == 1 ? "v1" : "none mounted at /sys/fs/cgroup";
}

void find_nameservers(HostFacts* facts) {
  auto text = os::read_file("/etc/resolv.conf", 1U << 20U);
  if (!text.ok()) return;
  for_each_line(*text, [&](std::string_view line) {
    if (!line.starts_with("nameserver")) return;
    line.remove_prefix(10);
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin == 0 || begin == std::string_view::npos) return;
    line = line.substr(begin);
    facts->nameservers.emplace_back(line.substr(0, line.find_first_of(" \t#;")));
  });
}

void read_ids(HostFacts* facts) {
  facts->uid = ::getuid();
  facts->gid = ::getgid();
  if (const passwd* entry = ::getpwuid(facts->uid); entry != nullptr) {
    facts->user_name = entry->pw_name;
    facts->home = entry->pw_dir;
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/') {
    facts->home = home;
  }
  if (auto text = os::read_file("/etc/passwd"); text.ok()) {
    for_each_line(*text, [&](std::string_view line) {
      const auto fields = split(line, ':');
      const auto uid = fields.size() > 2 ? number(fields[2]) : std::nullopt;
      if (uid) facts->taken_ids.push_back({*uid, 1});
    });
  }
  if (auto text = os::read_file("/etc/subuid"); text.ok()) {
    for_each_line(*text, [&](std::string_view line) {
      const auto fields = split(line, ':');
      if (fields.size() != 3) return;
      const auto first = number(fields[1]);
      const auto count = number(fields[2]);
      if (!first || !count || *count == 0) return;
      const bool roots = fields[0] == "root" || fields[0] == "0";
      (roots ? facts->subordinate_ids : facts->taken_ids).push_back({*first, *count});
    });
  }
}

void find_docker(HostFacts* facts, const FactsQuery& query) {
  const auto client = [&]() -> Result<docker::DockerClient> {
    TRY_ASSIGN(const std::string socket, docker::own_daemon_address());
    return docker::DockerClient::connect(socket);
  }();
  facts->docker.daemon.works = client.ok();
  if (!client.ok()) {
    facts->docker.daemon.detail = client.error().message();
    return;
  }
  facts->docker.version = client->server_version();
  facts->docker.daemon.detail = "server " + client->server_version();
  if (query.image.empty()) return;
  auto image = client->inspect_image(query.image);
  if (!image.ok()) return;
  facts->docker.image_id = image->id;
  facts->docker.image_volumes = std::move(image->volumes);
  facts->docker.image_env = std::move(image->env);
}

}  // namespace

std::pair<int, int> kernel_version(std::string_view release) {
  const std::size_t dot = release.find('.');
  if (dot == std::string_view::npos) return {0, 0};
  const std::string_view rest = release.substr(dot + 1);
  const auto major = number(release.substr(0, dot));
  const auto minor = number(rest.substr(0, rest.find_first_not_of("0123456789")));
  if (!major || !minor) return {0, 0};
  return {static_cast<int>(*major), static_cast<int>(*minor)};
}

Result<HostFacts> gather_host_facts(const FactsQuery& query) {
  HostFacts facts;
  // Beside the other probes, where a thread can be had.
  auto launcher = std::async(std::launch::async | std::launch::deferred, [] {
    HostFacts found;
    find_bwrap(&found);
    return found;
  });
  facts.kernel = os::kernel_release();
  TRY(probe_kernel(&facts));
  facts.seccomp.works = os::has_seccomp_notify();
  facts.seccomp.detail = facts.seccomp.works ? "filters with user notification" : "not available";
  facts.landlock_abi = os::landlock_abi();
  facts.apparmor_restricts =
      first_line_of("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1";
  find_cgroups(&facts);
  find_nameservers(&facts);
  read_ids(&facts);
  if (query.docker) find_docker(&facts, query);
  HostFacts found = launcher.get();
  facts.bwrap = std::move(found.bwrap);
  facts.bwrap_path = std::move(found.bwrap_path);
  return facts;
}

}  // namespace cofferdam::orchestrator
