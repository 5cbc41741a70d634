// Waiting for one descriptor during the start, with a deadline and a way out.
#pragma once

#include <chrono>

#include "common/base/result.h"

namespace cofferdam::orchestrator {

// Waits until `fd` is readable. Errors: ETIMEDOUT after `timeout`; EINTR as soon as `interrupt`
// (-1: none) is readable.
Status wait_readable(int fd, int interrupt, std::chrono::milliseconds timeout);

}  // namespace cofferdam::orchestrator
