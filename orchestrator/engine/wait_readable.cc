#include "orchestrator/engine/wait_readable.h"

#include <poll.h>

#include <algorithm>

namespace cofferdam::orchestrator {

Status wait_readable(int fd, int interrupt, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd entries[2] = {{fd, POLLIN, 0}, {interrupt, POLLIN, 0}};
    const int ready = ::poll(entries, 2, static_cast<int>(std::max<long>(0, left.count())));
    if (ready < 0 && errno != EINTR) return Error::from_errno("poll");
    if (ready == 0) return Error::from_errno("no answer", ETIMEDOUT);
    if (ready < 0) continue;
    if (entries[1].revents != 0) return Error("interrupted", EINTR);
    if (entries[0].revents != 0) return {};
  }
}

}  // namespace cofferdam::orchestrator
