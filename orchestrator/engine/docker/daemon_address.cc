#include "orchestrator/engine/docker/daemon_address.h"

#include <cstdlib>

#include "common/base/escape.h"

namespace cofferdam::orchestrator::docker {

Result<std::string> parse_daemon_address(const std::optional<std::string>& docker_host) {
  constexpr std::string_view kScheme = "unix://";
  constexpr std::size_t kLongestSocketPath = 107;  // unix(7), sun_path
  if (!docker_host || docker_host->empty()) return std::string(kDefaultDaemonSocket);
  const std::string shown = escape_for_terminal(*docker_host);
  if (!docker_host->starts_with(kScheme)) {
    return Error("DOCKER_HOST=" + shown +
                 ": only a daemon on this machine can run a sandbox. Remedy: unset DOCKER_HOST, or "
                 "DOCKER_HOST=unix:///path/of/its/socket");
  }
  std::string path = docker_host->substr(kScheme.size());
  if (path.empty() || path.front() != '/' || path.size() > kLongestSocketPath) {
    return Error("DOCKER_HOST=" + shown + ": not the path of a socket");
  }
  return path;
}

Result<std::string> own_daemon_address() {
  const char* value = std::getenv("DOCKER_HOST");
  return parse_daemon_address(value == nullptr ? std::nullopt : std::optional<std::string>(value));
}

}  // namespace cofferdam::orchestrator::docker
