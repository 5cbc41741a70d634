// SlowWork: threads for what takes long (fsync, the copy of a large file), so that the mount's
// thread goes on with other requests. They never touch the view; what is to happen to it afterwards
// is a completion, run by the mount's thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "common/base/result.h"
#include "common/os/unique_fd.h"

namespace cofferdam::fsproxy {

class SlowWork final {
 public:
  static constexpr unsigned kThreads = 4;

  // `wake_fd` is an eventfd that a completion writes to.
  SlowWork() = default;
  ~SlowWork() { stop(); }
  SlowWork(const SlowWork&) = delete;
  SlowWork& operator=(const SlowWork&) = delete;

  Status open();
  // Any thread. Threads are started when there is work for them.
  void run(std::function<void()> task);
  // Any thread.
  void complete(std::function<void()> completion);
  // The mount's thread: runs what is complete.
  void run_completions();
  int wake_fd() const { return wake_.get(); }
  // Drops what has not begun and waits for the rest.
  void stop();

 private:
  void work();

  os::UniqueFd wake_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> tasks_;         // under mutex_
  std::vector<std::function<void()>> completions_;  // under mutex_
  std::vector<std::thread> threads_;                // under mutex_
  unsigned idle_ = 0;                               // under mutex_
  bool stopping_ = false;                           // under mutex_
};

}  // namespace cofferdam::fsproxy
