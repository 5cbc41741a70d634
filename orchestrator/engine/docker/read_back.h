// Reading back what really runs: Docker's description of a container and the kernel's, compared
// with the plan. Pure; each function names the first difference.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "orchestrator/engine/docker/container_plan.h"

namespace cofferdam::orchestrator::docker {

// The answer to GET /containers/<id>/json of a running container.
Status compare_inspect(const ContainerPlan& plan, const Json& inspect);

// /proc/<pid>/status of process 1. `filters`: how many seccomp filters it must have at least.
Status compare_status(const ContainerPlan& plan, const std::string& status, int filters);

// /proc/<pid>/mountinfo (proc_pid_mountinfo(5)): every mount is one that was planned, and every
// planned one is there. `fuse_devices` are the device numbers ("0:57") of fsproxy's mounts by path
// inside.
Status compare_mounts(const ContainerPlan& plan, const std::string& mountinfo,
                      const std::map<std::string, std::string>& fuse_devices);

// The targets of /proc/<pid>/ns/*, by name.
using NamespaceLinks = std::map<std::string, std::string>;
// The container shares only the network with the pause container, and nothing with the host but the
// user namespace.
Status compare_namespaces(const NamespaceLinks& host, const NamespaceLinks& pause,
                          const NamespaceLinks& container);

// /proc/<pid>/net/dev: no interface but `lo` and the fallback tunnels that the kernel puts,
// switched off, into every network namespace once their modules are loaded.
Status compare_interfaces(const std::string& net_dev);

}  // namespace cofferdam::orchestrator::docker
