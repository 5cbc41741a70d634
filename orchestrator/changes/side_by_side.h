// Pure or independent work on several processors at a time.
#pragma once

#include <cstddef>
#include <functional>

#include "common/base/result.h"

namespace cofferdam::orchestrator::changes {

// Calls `work` for each index below `count`, in no order, from this thread and a few more: what it
// shares must not change. After the first error no further one is begun; it is returned.
Status side_by_side(std::size_t count, const std::function<Status(std::size_t index)>& work);

}  // namespace cofferdam::orchestrator::changes
