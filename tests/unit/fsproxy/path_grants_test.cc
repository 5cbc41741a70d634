#include "common/os/path_grants.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "common/os/beneath.h"
#include "common/os/case_folding.h"
#include "common/os/files.h"

namespace cofferdam::os {
namespace {

// Runs `body` in a child, whose restrictions end with it; its return value.
int in_child(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 200;
}

class PathGrantsTest : public testing::Test {
 protected:
  PathGrantsTest() : dir_(std::move(TempDir::create("/var/tmp", "grants-").value())) {
    for (const char* name : {"read", "write", "other"}) {
      ::mkdir((path(name)).c_str(), 0700);
      EXPECT_TRUE(write_file_atomic(path(name) + "/file", "x").ok());
    }
  }
  std::string path(const std::string& name) const { return (dir_.path() / name).string(); }
  TempDir dir_;
};

TEST_F(PathGrantsTest, OpensOnlyWhatWasGranted) {
  const int result = in_child([&] {
    const auto restricted = restrict_paths({{path("read"), false}, {path("write"), true}});
    if (!restricted.ok()) return 100;
    if (!*restricted) return 77;
    const auto opens = [&](const std::string& file, int flags) {
      return open_file(path(file), flags).ok();
    };
    if (!opens("read/file", O_RDONLY) || !opens("write/file", O_RDWR)) return 1;
    if (opens("read/file", O_RDWR) || opens("other/file", O_RDONLY)) return 2;
    if (open_file("/etc/passwd", O_RDONLY).ok() || open_file("/proc/self/mem", O_RDONLY).ok())
      return 3;
    if (::mkdir(path("write/d").c_str(), 0700) != 0 || ::mkdir(path("read/d").c_str(), 0700) == 0)
      return 4;
    if (::rename(path("write/file").c_str(), path("write/d/file").c_str()) != 0) return 5;
    if (::mknod(path("write/w").c_str(), S_IFCHR, 0) != 0) return 6;
    return 0;
  });
  if (result == 77) GTEST_SKIP() << "this kernel has no Landlock of ABI 2 or newer";
  EXPECT_EQ(result, 0);
}

TEST_F(PathGrantsTest, CapabilitiesThatAreNotKeptAreGone) {
  EXPECT_EQ(in_child([&] {
              if (!keep_capabilities({}).ok()) return 1;
              const std::string status = read_file("/proc/self/status", 1 << 16).value();
              for (const char* set : {"CapEff", "CapPrm", "CapInh", "CapAmb"}) {
                if (status.find(std::string(set) + ":\t0000000000000000") == std::string::npos)
                  return 2;
              }
              return 0;
            }),
            0);
}

TEST_F(PathGrantsTest, NothingIsOpenedOutsideOfADirectory) {
  ASSERT_EQ(::symlink("/etc", path("read/link").c_str()), 0);
  ASSERT_EQ(::symlink("file", path("read/inside").c_str()), 0);
  const UniqueFd dir(std::move(open_file(path("read"), O_PATH | O_DIRECTORY).value()));
  EXPECT_TRUE(open_beneath(dir.get(), "file", O_RDONLY).ok());
  for (const char* name : {"..", "../other/file", "/etc/passwd", "link", "link/passwd", "inside"}) {
    EXPECT_FALSE(open_beneath(dir.get(), name, O_RDONLY).ok()) << name;
  }
  const UniqueFd root(std::move(open_file("/", O_PATH | O_DIRECTORY).value()));
  EXPECT_EQ(open_beneath(root.get(), "proc", O_RDONLY).error().error_number(), EXDEV);
}

TEST_F(PathGrantsTest, OrdinaryDirectoriesKeepCase) {
  EXPECT_FALSE(folds_case(path("read")));
  EXPECT_FALSE(folds_case(path("absent")));
}

}  // namespace
}  // namespace cofferdam::os
