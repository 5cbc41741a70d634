#include "common/os/pidfd.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace cofferdam::os {

Result<ProcessHandle> ProcessHandle::open(pid_t pid) {
  UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!fd) return Error::from_errno("pidfd_open");
  return ProcessHandle(std::move(fd), pid);
}

Status ProcessHandle::signal(int number) const {
  if (::syscall(SYS_pidfd_send_signal, fd_.get(), number, nullptr, 0) != 0 && errno != ESRCH) {
    return Error::from_errno("pidfd_send_signal");
  }
  return {};
}

bool ProcessHandle::ended_within(std::chrono::milliseconds timeout) const {
  pollfd entry{fd_.get(), POLLIN, 0};
  return ::poll(&entry, 1, static_cast<int>(timeout.count())) > 0;
}

Result<UniqueFd> ProcessHandle::take_descriptor(int number) const {
#ifndef SYS_pidfd_getfd
  constexpr long kPidfdGetfd = 438;
#else
  constexpr long kPidfdGetfd = SYS_pidfd_getfd;
#endif
  UniqueFd fd(static_cast<int>(::syscall(kPidfdGetfd, fd_.get(), number, 0)));
  if (!fd) return Error::from_errno("pidfd_getfd");
  return fd;
}

Status become_subreaper(bool on) {
  if (::prctl(PR_SET_CHILD_SUBREAPER, on ? 1UL : 0UL, 0UL, 0UL, 0UL) != 0) {
    return Error::from_errno("PR_SET_CHILD_SUBREAPER");
  }
  return {};
}

void reap_orphan(pid_t pid) {
  (void)::waitpid(pid, nullptr, WNOHANG);
}

}  // namespace cofferdam::os
