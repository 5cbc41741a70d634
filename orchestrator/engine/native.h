// The native engine: prepare, bubblewrap, process 1. Nothing of it appears on the host.
#pragma once

#include <memory>

#include "orchestrator/engine/engine.h"

namespace cofferdam::orchestrator {

std::unique_ptr<Engine> make_native_engine(const EngineInput& input);

}  // namespace cofferdam::orchestrator
