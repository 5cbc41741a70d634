// SeccompListener: the supervisor's end of SECCOMP_RET_USER_NOTIF (seccomp_unotify(2)).
//
// Nothing that a notification points to is ever read from the workload's memory; a call is only
// refused, never continued or carried out.
#pragma once

#include <cstdint>
#include <optional>

#include "common/base/result.h"
#include "common/os/unique_fd.h"

namespace cofferdam::os {

struct SyscallNotice {
  std::uint64_t id = 0;
  std::uint32_t pid = 0;  // in the receiver's pid namespace
  int number = 0;
  std::uint32_t architecture = 0;
};

class SeccompListener final {
 public:
  // `fd` comes from inside: an error unless it is a seccomp listener.
  static Result<SeccompListener> adopt(UniqueFd fd);

  int fd() const { return fd_.get(); }
  // Call when readable; nothing when the caller was killed meanwhile.
  Result<std::optional<SyscallNotice>> receive() const;
  // Answers with -error_number; a caller that is gone is no error.
  Status refuse(const SyscallNotice& notice, int error_number) const;

 private:
  explicit SeccompListener(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace cofferdam::os
