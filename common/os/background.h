// A process that goes on in the background, and how it tells its starter that it is ready.
#pragma once

#include <string>

#include "common/base/result.h"
#include "common/os/unique_fd.h"

namespace cofferdam::os {

// What fork_to_background gives to either side.
struct Background {
  bool in_child = false;
  // In the child: the write end of a pipe to the starter; whatever is written there is `report`
  // for it. In the starter: nothing.
  UniqueFd to_starter;
  // In the starter: what the child wrote until it closed its end (or died), 64 KiB at most.
  std::string report;
};

// Forks while only one thread runs. The child is in a session of its own and of no shell's job. The
// starter returns when the child has closed `to_starter`.
Result<Background> fork_to_background();

// stdin becomes /dev/null, stdout and stderr become `fd`: nothing of the starter's terminal or
// pipes is held any more.
Status replace_standard_descriptors(int fd);

}  // namespace cofferdam::os
