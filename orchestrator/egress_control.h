// Asking the egressproxy of a running sandbox over its control socket (docs/processes.md).
#pragma once

#include <string>
#include <string_view>

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "orchestrator/sandbox_store.h"

namespace cofferdam::orchestrator {

// The answer's body as JSON. An answer other than 200 is an error with its own words, and so is a
// sandbox that nobody serves any more.
Result<Json> ask_egressproxy(const SandboxRecord& sandbox, std::string_view method,
                             std::string_view target, std::string_view body = {});

}  // namespace cofferdam::orchestrator
