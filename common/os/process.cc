#include "common/os/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "common/os/pipes.h"

namespace cofferdam::os {
namespace {

int pidfd_open(pid_t pid) {
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
}

// Everything the child needs, prepared before fork so that the child only makes system calls.
struct ChildPlan {
  std::vector<char*> argv;
  std::vector<char*> env;
  std::vector<std::pair<int, int>> fds;  // sorted by target
  const char* directory = nullptr;
  int program_fd = -1;
  std::vector<int> groups;
  int error_pipe = -1;
  pid_t parent = -1;
  bool new_session = false;
  bool die_with_parent = false;
};

// What the child tells when it cannot execute.
struct ChildFault {
  int error_number = 0;
  bool in_group = false;
};

[[noreturn]] void fail_in_child(int error_pipe, bool in_group = false) {
  const ChildFault fault{errno, in_group};
  (void)!::write(error_pipe, &fault, sizeof fault);
  ::_exit(127);
}

// Moves each wanted descriptor above every target first, so that no dup2 overwrites a source.
bool arrange_descriptors(const ChildPlan& plan, int* error_pipe, int* program_fd) {
  int floor = 3;
  for (const auto& [source, target] : plan.fds) floor = std::max(floor, target + 1);
  std::array<int, 128> moved{};
  if (plan.fds.size() > moved.size()) {
    errno = E2BIG;
    return false;
  }
  for (std::size_t i = 0; i < plan.fds.size(); ++i) {
    moved[i] = ::fcntl(plan.fds[i].first, F_DUPFD_CLOEXEC, floor);
    if (moved[i] < 0) return false;
  }
  const int new_error = ::fcntl(*error_pipe, F_DUPFD_CLOEXEC, floor);
  if (new_error < 0) return false;
  *error_pipe = new_error;
  if (*program_fd >= 0) {
    *program_fd = ::fcntl(*program_fd, F_DUPFD_CLOEXEC, floor);
    if (*program_fd < 0) return false;
  }
  // What is not asked for closes at exec; the standard three are never left open.
  if (::syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */) != 0) return false;
  for (int target = 0; target < 3; ++target) {
    const auto named = [&](const auto& p) { return p.second == target; };
    if (std::any_of(plan.fds.begin(), plan.fds.end(), named)) continue;
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) return false;
    if (null == target) {
      if (::fcntl(target, F_SETFD, 0) != 0) return false;
    } else {
      if (::dup2(null, target) < 0) return false;
      ::close(null);
    }
  }
  for (std::size_t i = 0; i < plan.fds.size(); ++i) {
    if (::dup2(moved[i], plan.fds[i].second) < 0) return false;
  }
  return true;
}

[[noreturn]] void child_main(const ChildPlan& plan) {
  int error_pipe = plan.error_pipe;
  int program_fd = plan.program_fd;
  if (plan.die_with_parent) {
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail_in_child(error_pipe);
    if (::getppid() != plan.parent) ::_exit(127);
  }
  for (const int group : plan.groups) {
    if (::write(group, "0", 1) != 1) fail_in_child(error_pipe, true);
  }
  if (plan.new_session && ::setsid() < 0) fail_in_child(error_pipe);
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (plan.directory != nullptr && ::chdir(plan.directory) != 0) fail_in_child(error_pipe);
  if (!arrange_descriptors(plan, &error_pipe, &program_fd)) fail_in_child(error_pipe);
  if (program_fd >= 0) {
    ::syscall(SYS_execveat, program_fd, "", plan.argv.data(), plan.env.data(), AT_EMPTY_PATH);
  } else {
    ::execve(plan.argv[0], plan.argv.data(), plan.env.data());
  }
  fail_in_child(error_pipe);
}

ExitStatus decode(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return {false, info.si_status};
  return {true, info.si_status};
}

}  // namespace

Result<ChildProcess> ChildProcess::spawn(const SpawnOptions& options) {
  if (options.argv.empty()) return Error("spawn: empty argument list");
  ChildPlan plan;
  for (const std::string& word : options.argv) plan.argv.push_back(const_cast<char*>(word.c_str()));
  plan.argv.push_back(nullptr);
  if (options.env) {
    for (const std::string& word : *options.env)
      plan.env.push_back(const_cast<char*>(word.c_str()));
  } else {
    for (char** word = environ; *word != nullptr; ++word) plan.env.push_back(*word);
  }
  plan.env.push_back(nullptr);
  plan.fds = options.fds;
  plan.directory = options.directory ? options.directory->c_str() : nullptr;
  plan.program_fd = options.program_fd;
  plan.groups = options.groups;
  plan.new_session = options.new_session;
  plan.die_with_parent = options.die_with_parent;
  plan.parent = ::getpid();
  TRY_ASSIGN(Pipe errors, make_pipe());
  plan.error_pipe = errors.write.get();

  const pid_t pid = ::fork();
  if (pid < 0) return Error::from_errno("fork");
  if (pid == 0) child_main(plan);
  errors.write.reset();

  ChildProcess child;
  child.pid_ = pid;
  child.pidfd_.reset(pidfd_open(pid));
  ChildFault fault;
  ssize_t got = 0;
  do {
    got = ::read(errors.read.get(), &fault, sizeof fault);
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof fault)) {
    (void)child.wait();
    return Error::from_errno((fault.in_group ? "control group of " : "execute ") + options.argv[0],
                             fault.error_number);
  }
  if (!child.pidfd_) return Error::from_errno("pidfd_open");
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), pidfd_(std::move(other.pidfd_)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  (void)wait();
}

Status ChildProcess::signal(int number) const {
  if (pid_ <= 0) return Error::from_errno("signal", ESRCH);
  if (::syscall(SYS_pidfd_send_signal, pidfd_.get(), number, nullptr, 0) != 0) {
    return Error::from_errno("pidfd_send_signal");
  }
  return {};
}

Result<ExitStatus> ChildProcess::wait() {
  if (pid_ <= 0) return Error::from_errno("wait", ECHILD);
  siginfo_t info{};
  int result = 0;
  do {
    result = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return Error::from_errno("waitid");
  pid_ = -1;
  pidfd_.reset();
  return decode(info);
}

Result<std::optional<ExitStatus>> ChildProcess::wait_for(std::chrono::milliseconds timeout) {
  if (pid_ <= 0) return Error::from_errno("wait", ECHILD);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd entry{pidfd_.get(), POLLIN, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::max<long>(0, left.count())));
    if (ready < 0 && errno != EINTR) return Error::from_errno("poll");
    if (ready > 0) {
      TRY_ASSIGN(const ExitStatus status, wait());
      return std::optional<ExitStatus>(status);
    }
    if (ready == 0) return std::optional<ExitStatus>();
  }
}

Result<CommandOutput> run_command(SpawnOptions options, std::chrono::milliseconds timeout) {
  constexpr std::size_t kLimit = 1U << 20U;
  TRY_ASSIGN(Pipe out, make_pipe());
  TRY_ASSIGN(Pipe err, make_pipe());
  options.fds.emplace_back(out.write.get(), 1);
  options.fds.emplace_back(err.write.get(), 2);
  TRY_ASSIGN(ChildProcess child, ChildProcess::spawn(options));
  out.write.reset();
  err.write.reset();
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  CommandOutput output;
  std::array<pollfd, 2> entries{pollfd{out.read.get(), POLLIN, 0},
                                pollfd{err.read.get(), POLLIN, 0}};
  std::array<std::string*, 2> sinks{&output.out, &output.err};
  while (entries[0].fd >= 0 || entries[1].fd >= 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return Error::from_errno(options.argv[0], ETIMEDOUT);
    const int ready = ::poll(entries.data(), entries.size(), static_cast<int>(left.count()));
    if (ready < 0 && errno != EINTR) return Error::from_errno("poll");
    for (std::size_t i = 0; i < entries.size() && ready > 0; ++i) {
      if (entries[i].fd < 0 || entries[i].revents == 0) continue;
      char buffer[16384];
      const ssize_t got = ::read(entries[i].fd, buffer, sizeof buffer);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        entries[i].fd = -1;
      } else if (sinks[i]->size() < kLimit) {
        sinks[i]->append(buffer, static_cast<std::size_t>(got));
      }
    }
  }
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  TRY_ASSIGN(const auto status, child.wait_for(std::max(left, std::chrono::milliseconds(0))));
  if (!status) return Error::from_errno(options.argv[0], ETIMEDOUT);
  output.status = *status;
  return output;
}

}  // namespace cofferdam::os
