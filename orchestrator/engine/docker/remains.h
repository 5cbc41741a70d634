// What a dead supervisor left on a Docker daemon and below /run/cofferdam.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/engine/docker/container_plan.h"
#include "orchestrator/sandbox_store.h"

namespace cofferdam::orchestrator::docker {

// Which state directory a sandbox belongs to: two of them on one daemon never touch each other's.
std::string instance_of(const SandboxRecord& record);

// Removes a container by its name, if it carries the labels of this sandbox and this state
// directory; another one of that name is an error. The daemon is the one that the record names
// (`docker` in its resources). A container that is gone is fine.
Status remove_owned_container(const SandboxRecord& record, const std::string& name);

// Containers of this state directory whose sandbox has ended or is not there: the daemon made them
// after their supervisor had died. Their names; nothing where no daemon answers.
Result<std::vector<std::string>> remove_stray_containers(const SandboxStore& store);

}  // namespace cofferdam::orchestrator::docker
