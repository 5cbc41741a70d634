// The docker engine, for root: a pause container whose network namespace is prepared from outside,
// FUSE mounts on the host, and one workload container that joins.
#pragma once

#include <memory>

#include "orchestrator/engine/engine.h"

namespace cofferdam::orchestrator::docker {

std::unique_ptr<Engine> make_docker_engine(const EngineInput& input);

}  // namespace cofferdam::orchestrator::docker
