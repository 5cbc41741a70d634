// Session: one FUSE mount and the one thread that serves it.
//
// The kernel's wait is the workload's wait, so the thread asks again for a short moment before it
// sleeps, as long as that pays. What takes long is done by SlowWork, and StaleNotifier tells the
// kernel what to forget.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "common/log/event_log.h"
#include "common/os/unique_fd.h"
#include "fsproxy/fuse/lower_watcher.h"
#include "fsproxy/fuse/operations.h"
#include "fsproxy/fuse/policy_file.h"
#include "fsproxy/fuse/request_counts.h"
#include "fsproxy/fuse/stale_notifier.h"
#include "fsproxy/overlay/ledger.h"

namespace cofferdam::fsproxy {

class Session final {
 public:
  // `fuse` is a /dev/fuse descriptor that is mounted already. Opens the layers; serves nothing yet.
  static Result<std::unique_ptr<Session>> create(const MountPolicy& mount, const FsPolicy& policy,
                                                 overlay::Ledger& ledger, log::EventLog& events,
                                                 std::size_t max_open, os::UniqueFd fuse);
  // Before start(): the helper that registers this mount's backing files, as number `index`.
  void use_helper(BackingHelper* helper, std::uint32_t index);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // What the thread that runs the service is told, one byte each.
  enum class News : char { kEnded = 'x', kWriters = 'w' };
  // Starts the thread; `news_fd` gets kEnded when it ends, kWriters when the first file is written
  // past it.
  void start(int news_fd);
  // Asks the thread to end after the request that it works on and waits for that; what is recorded
  // is written then.
  void join();

  // --- for a checkpoint (checkpoint.h); not by the mount's thread.
  // Holds the thread between two requests for as long as it lives; the view is the holder's.
  class Pause {
   public:
    virtual ~Pause() = default;
  };
  // Null where the thread did not come to it in time.
  std::unique_ptr<Pause> pause(std::chrono::milliseconds patience);
  overlay::Overlay& view() { return *view_; }
  bool writable() const { return writable_; }
  // While paused: the path of a file that is written past this service; empty: there is none.
  std::string written_past();
  // Whether files may be opened that are written past it. Any thread.
  void allow_new_writers(bool allowed) { state_->writers_allowed = allowed; }
  // While paused: what was in upper lies in a frozen layer.
  void after_freeze();
  // What was written through mappings of files comes here. Waits for it.
  void fetch_mapped_writes(std::chrono::milliseconds patience);
  Status sync_disk();

  const std::string& name() const { return name_; }
  const RequestCounts& requests() const { return counts_; }
  std::uint64_t nodes() const { return nodes_; }
  std::uint64_t denials() const { return guard_->denials(); }
  const WriteMeter& meter() const { return meter_; }
  // Records that what was written past this service used the quota up. Any thread.
  void tell_over_quota();
  int fuse_fd() const { return fuse_session_fd(fuse_.get()); }
  bool passthrough() const { return passthrough_on_; }
  std::uint64_t watches() const { return watches_; }

 private:
  struct Destroy {
    void operator()(struct fuse_session* session) const { fuse_session_destroy(session); }
  };

  explicit Session(std::string name);
  void serve();
  bool wait_for_request();
  // What has to be done now and then, also while requests keep coming: records, news of lower, what
  // was written past us.
  void keep_house();
  void prune();
  void tell(News news) const;
  // What was put off to be done in batches.
  void tell_what_waits();
  // The numbers that stats tell.
  void publish();
  void tell_stale(std::vector<overlay::Stale> stale);

  std::string name_;
  bool writable_ = false;
  os::UniqueFd disk_;  // a directory of the layer
  int news_fd_ = -1;
  WriteMeter meter_;
  std::unique_ptr<Guard> guard_;
  std::unique_ptr<LowerWatcher> watcher_;
  std::unique_ptr<overlay::Overlay> view_;
  SlowWork slow_;
  std::unique_ptr<CopyQueue> copies_;
  std::unique_ptr<Passthrough> passthrough_;
  std::unique_ptr<Listings> listings_;
  std::unique_ptr<MountState> state_;
  std::unique_ptr<struct fuse_session, Destroy> fuse_;
  os::UniqueFd stop_event_;
  std::thread thread_;
  std::atomic<bool> stopping_{false};
  RequestCounts counts_;
  std::atomic<std::uint64_t> nodes_{0};
  std::chrono::steady_clock::time_point last_flush_{};
  std::atomic<std::uint64_t> watches_{0};
  std::atomic<bool> passthrough_on_{false};
  std::unique_ptr<StaleNotifier> notifier_;
};

}  // namespace cofferdam::fsproxy
