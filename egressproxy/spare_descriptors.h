// Descriptors kept in reserve: when none is left (EMFILE), one is given up to accept a connection
// that must be answered, and taken back afterwards.
#pragma once

#include <cstddef>
#include <vector>

#include "common/os/pipes.h"
#include "common/os/unique_fd.h"

namespace cofferdam::egressproxy {

class SpareDescriptors final {
 public:
  // Copies of `original`, which stays the caller's.
  SpareDescriptors(int original, std::size_t count) : original_(original), count_(count) {
    refill();
  }
  // False when none is left to give up.
  bool give_up_one() {
    if (spares_.empty()) return false;
    spares_.pop_back();
    return true;
  }
  // Takes back what can be had now.
  void refill() {
    while (spares_.size() < count_) {
      auto copy = os::duplicate_fd(original_);
      if (!copy.ok()) return;
      spares_.push_back(std::move(copy).value());
    }
  }
  bool complete() const { return spares_.size() == count_; }
  void clear() {
    count_ = 0;
    spares_.clear();
  }

 private:
  int original_;
  std::size_t count_;
  std::vector<os::UniqueFd> spares_;
};

}  // namespace cofferdam::egressproxy
