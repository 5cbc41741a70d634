// Walks of trees deeper than any path.
#include "fsproxy/overlay/tree_walk.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/os/files.h"
#include "common/os/unique_fd.h"

namespace cofferdam::overlay {
namespace {

class TreeWalk : public testing::Test {
 protected:
  TreeWalk() : dir_(std::move(os::TempDir::create("/var/tmp", "walk-").value())) {
    top_.reset(::open(dir_.path().c_str(), O_RDONLY | O_DIRECTORY));
    os::UniqueFd at(::fcntl(top_.get(), F_DUPFD_CLOEXEC, 3));
    for (int i = 0; i < kDepth; ++i) {
      EXPECT_EQ(::mkdirat(at.get(), "directory", 0700), 0);
      os::UniqueFd(::openat(at.get(), "file", O_CREAT | O_WRONLY, 0600));
      EXPECT_EQ(::mkdirat(at.get(), "sibling", i % 5 == 0 ? 0 : 0500), 0);
      at.reset(::openat(at.get(), "directory", O_RDONLY | O_DIRECTORY));
    }
  }

  // Runs `walk` with hardly any descriptors to be had.
  Status with_few_descriptors(const std::function<Status()>& walk) {
    struct rlimit before {};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const struct rlimit few { static_cast<rlim_t>(top_.get()) + 12, before.rlim_max };
    ::setrlimit(RLIMIT_NOFILE, &few);
    const Status result = walk();
    ::setrlimit(RLIMIT_NOFILE, &before);
    return result;
  }

  static constexpr int kDepth = 1500;
  os::TempDir dir_;
  os::UniqueFd top_;
};

TEST_F(TreeWalk, DeepTreesNeedAHandfulOfDescriptors) {
  int directories = 0;
  int files = 0;
  const Status walked = with_few_descriptors([&] {
    return walk_below(
        top_.get(), [&](const struct stat& st) { ++(S_ISDIR(st.st_mode) ? directories : files); });
  });
  EXPECT_TRUE(walked.ok()) << walked.error().message();
  EXPECT_EQ(directories, 2 * kDepth);
  EXPECT_EQ(files, kDepth);
  const Status removed = with_few_descriptors([&] { return remove_below(top_.get()); });
  EXPECT_TRUE(removed.ok()) << removed.error().message();
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

}  // namespace
}  // namespace cofferdam::overlay
