// PollLoop: poll(2) over descriptors with a callback each. One thread.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>

#include "common/base/result.h"

namespace cofferdam::orchestrator {

class PollLoop final {
 public:
  using Clock = std::chrono::steady_clock;
  using Callback = std::function<void(short revents)>;

  // The descriptor is not owned and must stay open until unwatch. Replaces an earlier watch.
  void watch(int fd, short events, Callback callback);
  void unwatch(int fd);
  bool watches(int fd) const { return watches_.contains(fd); }

  // Waits for one round of readiness, at most until `deadline`, and runs its callbacks. A callback
  // may watch and unwatch anything.
  Status run_once(std::optional<Clock::time_point> deadline);

 private:
  struct Watch {
    short events = 0;
    Callback callback;
  };
  std::map<int, Watch> watches_;
};

}  // namespace cofferdam::orchestrator
