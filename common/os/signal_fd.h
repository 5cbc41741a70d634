// SignalFd: signals of the process as reads from a descriptor (signalfd(2)).
#pragma once

#include <csignal>
#include <initializer_list>
#include <optional>

#include "common/base/result.h"
#include "common/os/unique_fd.h"

namespace cofferdam::os {

// Blocks the signals for the calling thread as long as it lives; the mask of before comes back with
// the destructor. Children started by ChildProcess have no blocked signal.
class SignalFd final {
 public:
  static Result<SignalFd> create(std::initializer_list<int> signals);
  SignalFd(SignalFd&& other) noexcept;
  SignalFd& operator=(SignalFd&&) = delete;
  SignalFd(const SignalFd&) = delete;
  SignalFd& operator=(const SignalFd&) = delete;
  ~SignalFd();

  int fd() const { return fd_.get(); }
  // The next pending signal's number; nothing when none is pending.
  std::optional<int> next() const;

 private:
  SignalFd() = default;
  UniqueFd fd_;
  sigset_t before_{};
};

}  // namespace cofferdam::os
