#include "fsproxy/fuse/stale_notifier.h"

namespace cofferdam::fsproxy {

using std::chrono::steady_clock;

StaleNotifier::StaleNotifier(struct fuse_session* session)
    : session_(session), thread_([this] { work(); }) {}

StaleNotifier::~StaleNotifier() {
  stop();
}

void StaleNotifier::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    ready_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

bool StaleNotifier::idle() {
  const std::lock_guard lock(mutex_);
  return now_.empty() && !telling_;
}

void StaleNotifier::tell(std::vector<overlay::Stale> stale, bool twice) {
  const std::lock_guard lock(mutex_);
  now_.push_back({std::move(stale), twice});
  ready_.notify_one();
}

void StaleNotifier::tell_after(std::vector<overlay::Stale> stale, std::chrono::milliseconds delay) {
  const std::lock_guard lock(mutex_);
  later_.emplace(steady_clock::now() + delay, Batch{std::move(stale), false});
  ready_.notify_one();
}

void StaleNotifier::work() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (now_.empty() && !later_.empty() && later_.begin()->first <= steady_clock::now()) {
      now_.push_back(std::move(later_.begin()->second));
      later_.erase(later_.begin());
    }
    if (now_.empty()) {
      if (later_.empty()) {
        ready_.wait(lock);
      } else {
        ready_.wait_until(lock, later_.begin()->first);
      }
      continue;
    }
    Batch batch = std::move(now_.front());
    now_.pop_front();
    telling_ = true;
    lock.unlock();
    tell_kernel(batch.stale);
    lock.lock();
    telling_ = false;
    if (batch.again) {
      later_.emplace(steady_clock::now() + kAgainAfter, Batch{std::move(batch.stale), false});
    }
  }
}

// Failures say that the kernel does not know the object, or is gone.
void StaleNotifier::tell_kernel(const std::vector<overlay::Stale>& stale) {
  for (const overlay::Stale& one : stale) {
    if (!one.name.empty()) {
      (void)fuse_lowlevel_notify_inval_entry(session_, one.dir, one.name.c_str(), one.name.size());
    }
    if (one.child != 0) {
      (void)fuse_lowlevel_notify_inval_inode(session_, one.child, one.attributes_only ? -1 : 0, 0);
    }
    // The pages of a directory are its listing.
    if (one.listing && one.dir != one.child) {
      (void)fuse_lowlevel_notify_inval_inode(session_, one.dir, 0, 0);
    }
  }
}

}  // namespace cofferdam::fsproxy
