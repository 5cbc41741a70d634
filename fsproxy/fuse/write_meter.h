// WriteMeter: what is written past this service through open files (passthrough), as the disk tells
// it. Thread safe: the mount's thread says what is open and charged, another one looks, for the
// mount's thread may be busy with a long request while others write.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <unordered_map>

namespace cofferdam::fsproxy {

class WriteMeter final {
 public:
  // `on_first` is called when the first file is added, on the thread that adds it.
  explicit WriteMeter(std::function<void()> on_first) : on_first_(std::move(on_first)) {}

  // `fd` is open for writing, and stays open until remove(). What it holds now is charged.
  void add(int fd);
  void remove(int fd);
  // What it holds now is charged.
  void charged(int fd);

  bool empty() const { return count_ == 0; }
  // Bytes on disk that are not charged yet.
  std::uint64_t uncharged() const;

 private:
  std::function<void()> on_first_;
  std::atomic<std::size_t> count_{0};
  mutable std::mutex mutex_;
  std::unordered_map<int, std::uint64_t> files_;  // charged bytes of each; under mutex_
};

}  // namespace cofferdam::fsproxy
