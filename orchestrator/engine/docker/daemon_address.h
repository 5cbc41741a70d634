// Which Docker daemon: only one that listens on a Unix socket of this machine. Pure.
#pragma once

#include <optional>
#include <string>

#include "common/base/result.h"

namespace cofferdam::orchestrator::docker {

inline constexpr char kDefaultDaemonSocket[] = "/var/run/docker.sock";

// The path of the daemon's socket from the value of DOCKER_HOST, if it is set. Daemons on other
// machines (tcp, ssh, npipe) are errors: a sandbox needs a daemon on this kernel.
Result<std::string> parse_daemon_address(const std::optional<std::string>& docker_host);

// The same for this process's environment.
Result<std::string> own_daemon_address();

}  // namespace cofferdam::orchestrator::docker
