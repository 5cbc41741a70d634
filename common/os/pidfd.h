// Processes that are not our children, held by pidfd (pidfd_open(2)).
#pragma once

#include <sys/types.h>

#include <chrono>

#include "common/base/result.h"
#include "common/os/unique_fd.h"

namespace cofferdam::os {

class ProcessHandle final {
 public:
  static Result<ProcessHandle> open(pid_t pid);

  int fd() const { return fd_.get(); }  // readable when the process has ended
  pid_t pid() const { return pid_; }
  // A process that is gone is no error.
  Status signal(int number) const;
  bool ended() const { return ended_within(std::chrono::milliseconds(0)); }
  bool ended_within(std::chrono::milliseconds timeout) const;
  // A duplicate of a descriptor of that process (pidfd_getfd(2), needs the right to ptrace it).
  Result<UniqueFd> take_descriptor(int number) const;

 private:
  ProcessHandle(UniqueFd fd, pid_t pid) : fd_(std::move(fd)), pid_(pid) {}
  UniqueFd fd_;
  pid_t pid_ = -1;
};

// Orphans below this process become its children (PR_SET_CHILD_SUBREAPER);
// those that have ended are reaped by reap_orphan.
Status become_subreaper(bool on);
// Reaps this one child if it has ended.
void reap_orphan(pid_t pid);

}  // namespace cofferdam::os
