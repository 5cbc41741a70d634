// How far long work is, as one line on stderr that replaces itself. Only on a terminal that can;
// nothing of it is left there.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace cofferdam::orchestrator::cli {

class ProgressBar final {
 public:
  // `what` goes before it: "merging".
  explicit ProgressBar(std::string what);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Any thread. Work that ends soon shows nothing.
  void tell(std::uint64_t done, std::uint64_t total);

 private:
  using Clock = std::chrono::steady_clock;

  const std::string what_;
  const bool shown_;
  std::mutex mutex_;
  Clock::time_point next_;
  bool anything_ = false;
};

}  // namespace cofferdam::orchestrator::cli
