// What the reader can still do once it is caged: each attempt in a process of its own.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "orchestrator/reader/cage.h"

namespace cofferdam::orchestrator::reader {
namespace {

constexpr int kCageFailed = 99;

struct Outcome {
  bool killed = false;
  int code = 0;
};

Outcome caged(const std::function<int()>& attempt) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(enter_cage().ok() ? attempt() : kCageFailed);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) return {true, WTERMSIG(status)};
  return {false, WEXITSTATUS(status)};
}

// 0 when it failed as it should.
int denied(long result) {
  return result == -1 && (errno == EPERM || errno == EACCES) ? 0 : 1;
}

TEST(ReaderCage, LeavesNoPathAndNoSocket) {
  EXPECT_EQ(caged([] { return denied(::open("/etc/passwd", O_RDONLY)); }).code, 0);
  EXPECT_EQ(caged([] { return denied(::open("/dev/null", O_WRONLY)); }).code, 0);
  EXPECT_EQ(caged([] { return denied(::socket(AF_INET, SOCK_STREAM, 0)); }).code, 0);
  EXPECT_EQ(caged([] { return denied(::socket(AF_UNIX, SOCK_STREAM, 0)); }).code, 0);
}

TEST(ReaderCage, EndsWhoeverTriesAnythingElse) {
  const std::function<int()> attempts[] = {
      [] { return ::execl("/bin/true", "true", nullptr); },
      [] { return static_cast<int>(::fork()); },
      [] { return ::unlink("/tmp/none"); },
      [] { return ::kill(1, 0); },
      [] { return ::chdir("/"); },
      [] { return ::setuid(0); },
      [] {
        void* code = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return code == MAP_FAILED ? 0 : 1;
      },
  };
  for (std::size_t i = 0; i < std::size(attempts); ++i) {
    const Outcome outcome = caged(attempts[i]);
    EXPECT_TRUE(outcome.killed) << i << ": exit status " << outcome.code;
    EXPECT_EQ(outcome.code, SIGSYS) << i;
  }
}

TEST(ReaderCage, KeepsDescriptorsAndMemory) {
  const int fd = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  const Outcome outcome = caged([fd] {
    char bytes[4];
    if (::pread(fd, bytes, sizeof bytes, 0) != 4 || bytes[1] != 'E') return 1;
    std::string more(std::size_t{64} << 20U, 'x');
    return more.back() == 'x' ? 0 : 1;
  });
  ::close(fd);
  EXPECT_FALSE(outcome.killed);
  EXPECT_EQ(outcome.code, 0);
}

TEST(ReaderCage, GivesUpTheIdsOfRoot) {
  if (::geteuid() != 0) return;  // an ordinary user's ids are as they were
  EXPECT_EQ(caged([] { return ::geteuid() == 65534 && ::getuid() == 65534 ? 0 : 1; }).code, 0);
}

}  // namespace
}  // namespace cofferdam::orchestrator::reader
