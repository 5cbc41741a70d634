// Child processes: started with exactly the descriptors they are to have, watched by pidfd.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/os/unique_fd.h"

namespace cofferdam::os {

struct ExitStatus {
  bool signalled = false;
  int code = 0;  // exit status, or the signal's number
  // What a shell would report: the exit status, or 128 + signal.
  int shell_status() const { return signalled ? 128 + code : code; }
};

struct SpawnOptions {
  std::vector<std::string> argv;  // argv[0] is the program's path unless `program_fd` is set
  int program_fd = -1;            // executed by descriptor (execveat) when >= 0
  std::optional<std::vector<std::string>> env;  // "NAME=value"; the caller's own when absent
  // (descriptor here, number there). Numbers not named are closed in the child; 0, 1 and 2 that are
  // not named become /dev/null.
  std::vector<std::pair<int, int>> fds;
  std::optional<std::string> directory;
  bool new_session = false;
  bool die_with_parent = false;  // PR_SET_PDEATHSIG(SIGKILL)
  // Files of control groups (cgroup.procs, tasks): the child writes "0" to each before it executes.
  std::vector<int> groups;
};

// The owner of one child. A child that still lives is killed and reaped by the destructor.
class ChildProcess final {
 public:
  // Failure to execute comes back as an error with errno of execve, not as a child that exits 127.
  static Result<ChildProcess> spawn(const SpawnOptions& options);

  ChildProcess() = default;
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }  // readable when the child has ended
  bool running() const { return pid_ > 0; }

  Status signal(int number) const;
  // Reaps; blocks until the child has ended, or for `timeout` (nothing then).
  Result<ExitStatus> wait();
  Result<std::optional<ExitStatus>> wait_for(std::chrono::milliseconds timeout);

 private:
  pid_t pid_ = -1;
  UniqueFd pidfd_;
};

struct CommandOutput {
  ExitStatus status;
  std::string out;  // at most 1 MiB, the rest is dropped
  std::string err;
};
// Runs a command to its end (killed after `timeout`) with stdin from /dev/null.
Result<CommandOutput> run_command(SpawnOptions options, std::chrono::milliseconds timeout);

}  // namespace cofferdam::os
