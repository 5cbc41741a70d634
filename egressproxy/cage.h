// The cage: what the service gives up after its set-up, before it serves the first byte.
#pragma once

#include <cstdint>
#include <optional>

#include "common/base/result.h"

namespace cofferdam::egressproxy {

// Ids when started by root, capabilities, dumps, files (Landlock), system calls (seccomp). An error
// when one of them cannot be given up; the process is then not fit to serve.
Status enter_cage(std::optional<std::uint32_t> uid, std::optional<std::uint32_t> gid);

}  // namespace cofferdam::egressproxy
