// The cage from inside: children enter it and try to get out; the parent reads what /proc says.
#include "egressproxy/cage.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "common/os/files.h"
#include "common/os/pipes.h"

namespace cofferdam::egressproxy {
namespace {

constexpr std::uint32_t kNobody = 65534;
constexpr int kNoCage = 255;

Status enter() {
  if (::geteuid() == 0) return enter_cage(kNobody, kNobody);
  return enter_cage(std::nullopt, std::nullopt);
}

// What waitpid(2) says of a child that has entered the cage and then done `act`, whose result is
// its exit status.
int in_cage(const std::function<int()>& act) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(enter().ok() ? act() : kNoCage);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

// errno of a call that fails, 0 of one that does not.
int errno_of(long result) {
  return result < 0 ? errno : 0;
}

struct Attempt {
  const char* what;
  std::function<long()> call;
};

TEST(Cage, WhatTheServiceDoesStillWorks) {
  const Attempt attempts[] = {
      {"an IPv4 socket", [] { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }},
      {"an IPv6 socket", [] { return ::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0); }},
      {"interface addresses", [] { return ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0); }},
      {"random numbers", [] { return ::open("/dev/urandom", O_RDONLY | O_CLOEXEC); }},
      {"memory",
       [] {
         void* const memory =
             ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
         return memory == MAP_FAILED ? -1L : 0L;
       }},
      {"a pipe's end", [] { return ::fcntl(0, F_GETFD); }},
  };
  for (const Attempt& attempt : attempts) {
    const int status = in_cage([&] { return errno_of(attempt.call()); });
    ASSERT_TRUE(WIFEXITED(status)) << attempt.what << ": signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0) << attempt.what;
  }
}

TEST(Cage, NothingElseDoes) {
  static char stack[65536];
  const Attempt attempts[] = {
      {"a file that everybody may read", [] { return ::open("/etc/passwd", O_RDONLY); }},
      {"a directory", [] { return ::open("/", O_RDONLY | O_DIRECTORY); }},
      {"a path", [] { return ::open("/", O_PATH); }},
      {"its own memory", [] { return ::open("/proc/self/mem", O_RDONLY); }},
      {"a new file", [] { return ::open("/tmp/cofferdam-cage-test", O_WRONLY | O_CREAT, 0600); }},
      {"a file without a name", [] { return ::open("/tmp", O_TMPFILE | O_RDWR, 0600); }},
      {"truncation", [] { return ::open("/dev/urandom", O_RDONLY | O_TRUNC); }},
      {"openat2",
       [] {
         const std::uint64_t how[3] = {O_RDONLY, 0, 0};
         return ::syscall(SYS_openat2, AT_FDCWD, "/dev/urandom", how, sizeof how);
       }},
      {"unlink", [] { return ::unlink("/tmp/cofferdam-cage-test"); }},
      {"mkdir", [] { return ::mkdir("/tmp/cofferdam-cage-test.d", 0700); }},
      {"chmod", [] { return ::chmod("/tmp", 0777); }},
      {"a Unix socket", [] { return ::socket(AF_UNIX, SOCK_STREAM, 0); }},
      {"a packet socket", [] { return ::socket(AF_PACKET, SOCK_RAW, 0); }},
      {"a vsock", [] { return ::socket(AF_VSOCK, SOCK_STREAM, 0); }},
      {"whether a file is there",
       [] {
         struct stat st {};
         return ::stat("/etc/passwd", &st);
       }},
      {"a listening socket", [] { return ::listen(::socket(AF_INET, SOCK_STREAM, 0), 1); }},
      {"a pair of sockets",
       [] {
         int pair[2];
         return ::socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
       }},
      {"a child", [] { return ::syscall(SYS_fork); }},
      {"a thread",
       [] { return ::syscall(SYS_clone, CLONE_VM | CLONE_FS, stack + 65536, 0, 0, 0); }},
      {"clone3", [] { return ::syscall(SYS_clone3, nullptr, 0); }},
      {"code in memory",
       [] {
         void* const memory =
             ::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
         return memory == MAP_FAILED ? -1L : 0L;
       }},
      {"data that becomes code",
       [] {
         void* const memory =
             ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
         return ::mprotect(memory, 4096, PROT_READ | PROT_EXEC);
       }},
      {"a signal to another process", [] { return ::kill(::getppid(), SIGTERM); }},
      {"other ids", [] { return ::setuid(0); }},
      {"memory without a name", [] { return ::syscall(SYS_memfd_create, "x", 0); }},
      {"io_uring", [] { return ::syscall(SYS_io_uring_setup, 1, nullptr); }},
      {"keys", [] { return ::syscall(SYS_add_key, "user", "x", "y", 1, -3); }},
      {"userfaultfd", [] { return ::syscall(SYS_userfaultfd, 0); }},
      {"perf", [] { return ::syscall(SYS_perf_event_open, nullptr, 0, -1, -1, 0); }},
      {"another process's descriptors", [] { return ::syscall(SYS_pidfd_open, ::getppid(), 0); }},
      {"being dumpable again", [] { return ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); }},
      {"a terminal's input", [] { return ::syscall(SYS_ioctl, 0, 0x5412 /* TIOCSTI */, "x"); }},
  };
  for (const Attempt& attempt : attempts) {
    const int status = in_cage([&] { return errno_of(attempt.call()); });
    ASSERT_TRUE(WIFEXITED(status)) << attempt.what << ": signal " << WTERMSIG(status);
    EXPECT_TRUE(WEXITSTATUS(status) == EPERM || WEXITSTATUS(status) == EACCES)
        << attempt.what << ": " << WEXITSTATUS(status);
  }
}

TEST(Cage, WhatNobodyCallsByAccidentIsTheEnd) {
  const Attempt attempts[] = {
      {"execve", [] { return ::execl("/bin/true", "true", nullptr); }},
      {"execveat",
       [] { return ::syscall(SYS_execveat, AT_FDCWD, "/bin/true", nullptr, nullptr, 0); }},
      {"ptrace", [] { return ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr); }},
      {"mount", [] { return ::mount("x", "/tmp", "tmpfs", 0, nullptr); }},
      {"unshare", [] { return ::syscall(SYS_unshare, CLONE_NEWUSER); }},
      {"setns", [] { return ::syscall(SYS_setns, 0, 0); }},
      {"bpf", [] { return ::syscall(SYS_bpf, 0, nullptr, 0); }},
      {"reading another process",
       [] { return ::syscall(SYS_process_vm_readv, ::getppid(), nullptr, 0, nullptr, 0, 0); }},
      {"a module", [] { return ::syscall(SYS_init_module, nullptr, 0, ""); }},
  };
  for (const Attempt& attempt : attempts) {
    const int status = in_cage([&] { return errno_of(attempt.call()); });
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
        << attempt.what << ": " << status;
  }
}

std::map<std::string, std::string> status_of(pid_t pid) {
  std::map<std::string, std::string> fields;
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::string value;
    if (words >> name >> value) fields[name] = value;
  }
  return fields;
}

TEST(Cage, ProcSaysThatNoRightIsLeft) {
  auto ready = os::make_pipe();
  auto hold = os::make_pipe();
  ASSERT_TRUE(ready.ok() && hold.ok());
  const pid_t child = ::fork();
  if (child == 0) {
    char byte = enter().ok() ? 'y' : 'n';
    (void)!::write(ready->write.get(), &byte, 1);
    hold->write.reset();
    (void)!::read(hold->read.get(), &byte, 1);
    ::_exit(0);
  }
  char word = 0;
  ASSERT_EQ(::read(ready->read.get(), &word, 1), 1);
  ASSERT_EQ(word, 'y');
  auto fields = status_of(child);
  const bool root = ::geteuid() == 0;
  for (const char* set : {"CapInh:", "CapPrm:", "CapEff:", "CapAmb:", "CapBnd:"}) {
    // An ordinary user cannot empty the bounding set, and cannot gain from it either.
    if (!root && std::string_view(set) == "CapBnd:") continue;
    EXPECT_EQ(fields[set], "0000000000000000") << set;
  }
  EXPECT_EQ(fields["NoNewPrivs:"], "1");
  EXPECT_EQ(fields["Seccomp:"], "2");
  if (root) {
    EXPECT_EQ(fields["Uid:"], std::to_string(kNobody));
    EXPECT_EQ(fields["Gid:"], std::to_string(kNobody));
    EXPECT_EQ(fields["Groups:"], "");
    // What is not dumpable belongs to root in /proc, whoever runs it (proc(5)).
    struct stat st {};
    ASSERT_EQ(::stat(("/proc/" + std::to_string(child) + "/environ").c_str(), &st), 0);
    EXPECT_EQ(st.st_uid, 0U);
  }
  std::ifstream limits("/proc/" + std::to_string(child) + "/limits");
  const std::string text{std::istreambuf_iterator<char>(limits), {}};
  const auto core = text.find("Max core file size");
  ASSERT_NE(core, std::string::npos);
  std::istringstream words(text.substr(core + 18));
  std::string soft;
  std::string hard;
  words >> soft >> hard;
  EXPECT_EQ(soft + " " + hard, "0 0");
  hold->write.reset();
  int status = 0;
  ::waitpid(child, &status, 0);
}

TEST(Cage, RootWithoutAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root has to become somebody else";
  const pid_t child = ::fork();
  if (child == 0) {
    const bool refused = !enter_cage(std::nullopt, std::nullopt).ok() && !enter_cage(0, 0).ok();
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace cofferdam::egressproxy
