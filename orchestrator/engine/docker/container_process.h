// Process 1 of a container, seen from the host.
#pragma once

#include <sys/types.h>

#include <string>

#include "common/base/result.h"
#include "common/os/pidfd.h"
#include "orchestrator/engine/docker/client.h"
#include "orchestrator/engine/docker/read_back.h"

namespace cofferdam::orchestrator::docker {

// The process that Docker names; an error when this kernel has none of that number.
Result<os::ProcessHandle> open_container_process(const DockerClient& client, const std::string& id);

// Waits until the process executes the program at `path` (the same file, also by a bind mount). It
// is the runtime's own program until then.
Status wait_for_program(const os::ProcessHandle& process, const std::string& path, int interrupt);

// The same by content: `digest` is the hexadecimal SHA-256.
Status wait_for_program_digest(const os::ProcessHandle& process, const std::string& digest,
                               int interrupt);

// Takes the supervisor's end of process 1's socket out of it.
Result<os::UniqueFd> take_socket(const os::ProcessHandle& process, int interrupt);

// Whether the file at `inside` in the process's mount namespace is the file at `path` of ours: the
// container runs on this kernel and its daemon sees our files. Only for a process that runs nothing
// hostile.
Result<bool> sees_same_file(const os::ProcessHandle& process, const std::string& inside,
                            const std::string& path);

Result<NamespaceLinks> namespace_links(const std::string& pid);  // "self", or a number

}  // namespace cofferdam::orchestrator::docker
