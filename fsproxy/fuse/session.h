// Session: one FUSE mount and the one thread that serves it.
//
// The kernel's wait is the workload's wait, so the thread asks again for a short moment before it
// sleeps. Another thread tells the kernel to drop pages: doing so while answering would deadlock.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/log/event_log.h"
#include "common/os/unique_fd.h"
#include "fsproxy/fuse/operations.h"
#include "fsproxy/overlay/ledger.h"

namespace cofferdam::fsproxy {

class Session final {
 public:
  // `fuse` is a /dev/fuse descriptor that is mounted already. Opens the layers; serves nothing yet.
  static Result<std::unique_ptr<Session>> create(const MountPolicy& mount, const FsPolicy& policy,
                                                 overlay::Ledger& ledger, log::EventLog& events,
                                                 std::size_t max_open, os::UniqueFd fuse);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Starts the thread; `ended_fd` gets one byte when it ends.
  void start(int ended_fd);
  // Asks the thread to end after the request that it works on. Any thread.
  void stop();
  // Waits for the end; what is recorded is written then.
  void join();

  const std::string& name() const { return name_; }
  std::uint64_t requests() const { return requests_; }
  std::uint64_t nodes() const { return nodes_; }
  std::uint64_t denials() const { return guard_->denials(); }

 private:
  struct Destroy {
    void operator()(struct fuse_session* session) const { fuse_session_destroy(session); }
  };

  Session(std::string name, const OwnerPolicy& owner);
  void serve();
  bool wait_for_request();
  void drop_pages();

  std::string name_;
  OwnerPolicy owner_;
  std::unique_ptr<Guard> guard_;
  std::unique_ptr<overlay::Overlay> view_;
  std::unique_ptr<MountState> state_;
  std::unique_ptr<struct fuse_session, Destroy> fuse_;
  os::UniqueFd stop_event_;
  std::thread thread_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> requests_{0};
  std::atomic<std::uint64_t> nodes_{0};

  std::thread dropper_;
  std::mutex drop_mutex_;
  std::condition_variable drop_ready_;
  std::vector<overlay::NodeId> to_drop_;  // under drop_mutex_
  bool dropper_ends_ = false;             // under drop_mutex_
};

}  // namespace cofferdam::fsproxy
