// StaleNotifier: the thread that tells the kernel what it must no longer believe. Telling while a
// request is answered would deadlock: the kernel may hold a lock that the request's process waits
// with.
//
// A change of lower is told twice: an answer that was on its way when it was told the first time
// may have brought the old state back.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "fsproxy/fuse/reply.h"

namespace cofferdam::fsproxy {

class StaleNotifier final {
 public:
  static constexpr std::chrono::milliseconds kAgainAfter{250};

  // `session` must outlive this.
  explicit StaleNotifier(struct fuse_session* session);
  ~StaleNotifier();
  StaleNotifier(const StaleNotifier&) = delete;
  StaleNotifier& operator=(const StaleNotifier&) = delete;

  // Any thread. `twice`: it came from lower.
  void tell(std::vector<overlay::Stale> stale, bool twice);
  // Any thread.
  void tell_after(std::vector<overlay::Stale> stale, std::chrono::milliseconds delay);
  // Nothing is left to be told now. Any thread.
  bool idle();
  // Tells nothing more. The mount must still be served: the kernel may be waiting for an answer
  // before it listens.
  void stop();

 private:
  struct Batch {
    std::vector<overlay::Stale> stale;
    bool again = false;
  };
  void work();
  void tell_kernel(const std::vector<overlay::Stale>& stale);

  struct fuse_session* session_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Batch> now_;                                              // under mutex_
  std::multimap<std::chrono::steady_clock::time_point, Batch> later_;  // under mutex_
  bool telling_ = false;                                               // under mutex_
  bool stopping_ = false;                                              // under mutex_
  std::thread thread_;
};

}  // namespace cofferdam::fsproxy
