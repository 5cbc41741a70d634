// RequestCounts: how many requests of each kind a mount got. Written by its thread, read by any.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "common/base/json_text.h"

namespace cofferdam::fsproxy {

class RequestCounts final {
 public:
  // `request`: what was read from /dev/fuse.
  void count(const void* request, std::size_t size);
  std::uint64_t all() const { return all_.load(std::memory_order_relaxed); }
  // By the names of <linux/fuse.h>, in lower case; none of those that never came.
  Json by_operation() const;

 private:
  // Higher numbers are counted as number 0.
  static constexpr std::size_t kKinds = 64;

  std::atomic<std::uint64_t> all_{0};
  std::array<std::atomic<std::uint64_t>, kKinds> kinds_{};
};

}  // namespace cofferdam::fsproxy
