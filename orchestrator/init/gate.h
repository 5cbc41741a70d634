// The gate: the listening sockets of a sandbox's network namespace, on loopback only.
#pragma once

#include <vector>

#include "common/base/result.h"
#include "common/os/unique_fd.h"

namespace cofferdam::init {

// UDP 53, TCP 53, 3128 and 3129 on 127.0.0.1 and, where IPv6 exists, on ::1.
Result<std::vector<os::UniqueFd>> open_gate();

}  // namespace cofferdam::init
