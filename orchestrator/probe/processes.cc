// Attempts on processes: process 1's descriptors, our own descriptors, credentials.
#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include "orchestrator/probe/probe.h"

namespace probe {
namespace {

pid_t victim(const Arguments& arguments) {
  return arguments.empty() ? 1 : static_cast<pid_t>(std::stol(arguments[0]));
}

int ptrace_attach(const Arguments& arguments) {
  if (::ptrace(PTRACE_SEIZE, victim(arguments), nullptr, nullptr) != 0) {
    return blocked_by_errno("ptrace");
  }
  return escaped("attached");
}

int steal_descriptor(const Arguments& arguments) {
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, victim(arguments), 0));
  if (pidfd < 0) return blocked_by_errno("pidfd_open");
  std::string told;
  for (int number = 0; number < 64; ++number) {
    const int fd = static_cast<int>(::syscall(SYS_pidfd_getfd, pidfd, number, 0));
    if (fd >= 0) return escaped("took descriptor " + std::to_string(number));
    if (number == 0) told = std::strerror(errno);
  }
  return blocked("pidfd_getfd: " + told);
}

int open_proc_descriptor(const Arguments& arguments) {
  const std::string directory = "/proc/" + std::to_string(victim(arguments)) + "/fd";
  DIR* dir = ::opendir(directory.c_str());
  if (dir == nullptr) return blocked_by_errno("opendir");
  while (const dirent* entry = ::readdir(dir)) {
    if (entry->d_name[0] == '.') continue;
    const int fd = ::open((directory + "/" + entry->d_name).c_str(), O_RDONLY | O_NONBLOCK);
    if (fd >= 0) {
      ::closedir(dir);
      return escaped(std::string("opened ") + entry->d_name);
    }
  }
  ::closedir(dir);
  return blocked("no descriptor opens");
}

int read_memory(const Arguments& arguments) {
  const std::string path = "/proc/" + std::to_string(victim(arguments)) + "/mem";
  const int fd = ::open(path.c_str(), O_RDONLY);
  if (fd < 0) return blocked_by_errno("open mem");
  return escaped("opened " + path);
}

int read_environment(const Arguments& arguments) {
  const std::string path = "/proc/" + std::to_string(victim(arguments)) + "/environ";
  const int fd = ::open(path.c_str(), O_RDONLY);
  if (fd < 0) return blocked_by_errno("open environ");
  char byte = 0;
  return ::read(fd, &byte, 1) == 1 ? escaped("read " + path) : blocked("empty");
}

// reopen-stdout: the supervisor's own stdout file, opened anew through /proc and truncated.
int reopen_stdout(const Arguments&) {
  struct stat st {};
  if (::fstat(1, &st) != 0) return unusable("fstat");
  if (S_ISREG(st.st_mode)) {
    const int fd = ::open("/proc/self/fd/1", O_WRONLY | O_TRUNC);
    return fd >= 0 ? escaped("stdout is a file of the host, and it was truncated")
                   : blocked("regular file that does not open");
  }
  return blocked("stdout is no file of the host");
}

// descriptors: anything but 0, 1 and 2 is open.
int stray_descriptors(const Arguments&) {
  DIR* dir = ::opendir("/proc/self/fd");
  if (dir == nullptr) return unusable("opendir");
  std::string stray;
  while (const dirent* entry = ::readdir(dir)) {
    if (entry->d_name[0] == '.') continue;
    const int number = std::stoi(entry->d_name);
    if (number > 2 && number != ::dirfd(dir)) stray += std::string(entry->d_name) + " ";
  }
  ::closedir(dir);
  return stray.empty() ? blocked("0, 1, 2 only") : escaped("inherited " + stray);
}

int any_capability(const Arguments&) {
  const int fd = ::open("/proc/self/status", O_RDONLY);
  char text[8192] = {};
  if (fd < 0 || ::read(fd, text, sizeof text - 1) <= 0) return unusable("/proc/self/status");
  ::close(fd);
  for (const char* field : {"CapEff:\t", "CapPrm:\t", "CapBnd:\t", "CapAmb:\t"}) {
    const char* at = std::strstr(text, field);
    if (at == nullptr) return unusable(field);
    if (std::strncmp(at + std::strlen(field), "0000000000000000", 16) != 0) {
      return escaped(std::string("not empty: ") + std::string(at, 24));
    }
  }
  return blocked("no capability");
}

int new_privileges(const Arguments&) {
  return ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? blocked("no_new_privs is set")
                                                       : escaped("no_new_privs is not set");
}

int host_processes(const Arguments&) {
  DIR* dir = ::opendir("/proc");
  if (dir == nullptr) return unusable("opendir");
  std::string seen;
  int count = 0;
  while (const dirent* entry = ::readdir(dir)) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    ++count;
  }
  ::closedir(dir);
  return count <= 8 ? blocked(std::to_string(count) + " processes are visible")
                    : escaped(std::to_string(count) + " processes are visible");
}

// A debugger on one's own child: the legitimate counterpart of ptrace-pid1.
int debug_own_child(const Arguments&) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    ::raise(SIGSTOP);
    ::_exit(7);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFSTOPPED(status)) return blocked("the child did not stop");
  ::ptrace(PTRACE_CONT, child, nullptr, nullptr);
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 7 ? escaped("traced") : blocked("not traced");
}

}  // namespace

const Attempt kProcessAttempts[] = {
    {"ptrace", ptrace_attach},           {"pidfd-getfd", steal_descriptor},
    {"proc-fd", open_proc_descriptor},   {"proc-mem", read_memory},
    {"proc-environ", read_environment},  {"reopen-stdout", reopen_stdout},
    {"descriptors", stray_descriptors},  {"capabilities", any_capability},
    {"new-privileges", new_privileges},  {"host-processes", host_processes},
    {"control-ptrace", debug_own_child}, {nullptr, nullptr}};

}  // namespace probe
