// Anonymous files in memory (memfd_create(2)): content handed to another process by descriptor.
#pragma once

#include <string_view>

#include "common/base/result.h"
#include "common/os/unique_fd.h"

namespace cofferdam::os {

// Holds `content`, sealed against every change, with its offset at the start. CLOEXEC.
Result<UniqueFd> make_memory_file(const char* name, std::string_view content);

// Without seals and empty: for a library that writes to a descriptor. rewind_file() afterwards.
Result<UniqueFd> make_empty_memory_file(const char* name);
Status rewind_file(int fd);

}  // namespace cofferdam::os
