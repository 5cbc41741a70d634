#include "orchestrator/engine/engine.h"

#include "orchestrator/engine/docker/docker_engine.h"
#include "orchestrator/engine/native.h"

namespace cofferdam::orchestrator {

Result<std::unique_ptr<Engine>> make_engine(const EngineInput& input) {
  if (input.plan.engine == "native") return make_native_engine(input);
  if (input.plan.engine == "docker" && input.plan.docker) {
    return docker::make_docker_engine(input);
  }
  return Error("engine " + input.plan.engine + ": not in this version");
}

}  // namespace cofferdam::orchestrator
