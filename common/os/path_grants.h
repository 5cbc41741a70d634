// What the service that serves a workload's files keeps: some capabilities, some trees. See
// confine.h for what every service gives up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace cofferdam::os {

// Keeps only these capabilities (numbers of capabilities(7)) in every set of this thread, and of
// the threads that it starts later. Those that it does not have are not gained.
Status keep_capabilities(const std::vector<int>& kept);

struct PathGrant {
  std::string path;
  bool write = false;  // else reading and listing only
};
// Landlock (landlock(7)): from now on only what lies below the given paths can be opened.
// `false`: this kernel has none.
Result<bool> restrict_paths(const std::vector<PathGrant>& grants);

}  // namespace cofferdam::os
