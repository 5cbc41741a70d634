#include "orchestrator/changes/side_by_side.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace cofferdam::orchestrator::changes {

Status side_by_side(std::size_t count, const std::function<Status(std::size_t index)>& work) {
  constexpr std::size_t kMostThreads = 8;
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  Status first;
  const auto run = [&] {
    while (true) {
      const std::size_t index = next.fetch_add(1);
      if (index >= count) return;
      if (const Status done = work(index); !done.ok()) {
        const std::lock_guard lock(mutex);
        if (first.ok()) first = done;
        next.store(count);
      }
    }
  };
  const std::size_t wanted = std::min<std::size_t>(std::thread::hardware_concurrency(), count);
  std::vector<std::thread> others;
  for (std::size_t n = 1; n < std::min(wanted, kMostThreads); ++n) {
    // The user's limit of processes may be reached: then it is done by those that are there.
    try {
      others.emplace_back(run);
    } catch (const std::system_error&) {
      break;
    }
  }
  run();
  for (std::thread& other : others) other.join();
  return first;
}

}  // namespace cofferdam::orchestrator::changes
