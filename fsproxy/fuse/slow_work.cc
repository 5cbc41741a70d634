#include "fsproxy/fuse/slow_work.h"

#include <sys/eventfd.h>
#include <unistd.h>

namespace cofferdam::fsproxy {

Status SlowWork::open() {
  wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) return Error::from_errno("eventfd");
  return {};
}

void SlowWork::run(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  tasks_.push_back(std::move(task));
  if (idle_ < tasks_.size() && threads_.size() < kThreads) {
    threads_.emplace_back([this] { work(); });
  }
  ready_.notify_one();
}

void SlowWork::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    ready_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
    --idle_;
    if (stopping_) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

void SlowWork::complete(std::function<void()> completion) {
  {
    const std::lock_guard lock(mutex_);
    completions_.push_back(std::move(completion));
  }
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

void SlowWork::run_completions() {
  std::uint64_t count = 0;
  (void)!::read(wake_.get(), &count, sizeof count);
  std::vector<std::function<void()>> now;
  {
    const std::lock_guard lock(mutex_);
    now.swap(completions_);
  }
  for (const auto& completion : now) completion();
}

void SlowWork::stop() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    tasks_.clear();
    threads.swap(threads_);
    ready_.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace cofferdam::fsproxy
