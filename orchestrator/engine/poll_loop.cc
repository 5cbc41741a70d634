#include "orchestrator/engine/poll_loop.h"

#include <poll.h>

#include <algorithm>
#include <vector>

namespace cofferdam::orchestrator {

void PollLoop::watch(int fd, short events, Callback callback) {
  watches_[fd] = Watch{events, std::move(callback)};
}

void PollLoop::unwatch(int fd) {
  watches_.erase(fd);
}

Status PollLoop::run_once(std::optional<Clock::time_point> deadline) {
  std::vector<pollfd> entries;
  for (const auto& [fd, watch] : watches_) entries.push_back({fd, watch.events, 0});
  int timeout = -1;
  if (deadline) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now()).count();
    timeout = static_cast<int>(std::clamp<long>(left, 0, 3600 * 1000L));
  }
  const int ready = ::poll(entries.data(), entries.size(), timeout);
  if (ready < 0) {
    if (errno == EINTR) return {};
    return Error::from_errno("poll");
  }
  for (const pollfd& entry : entries) {
    if (entry.revents == 0) continue;
    const auto found = watches_.find(entry.fd);
    if (found == watches_.end()) continue;  // unwatched by an earlier callback of this round
    const Callback callback = found->second.callback;
    callback(entry.revents);
  }
  return {};
}

}  // namespace cofferdam::orchestrator
