#include "common/layer/layer_marks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "common/os/files.h"

namespace cofferdam::layer {
namespace {

class LayerMarksTest : public testing::Test {
 protected:
  LayerMarksTest()
      : dir_(std::move(os::TempDir::create("/var/tmp", "marks-").value())),
        fd_(std::move(os::open_file(dir_.path(), O_RDONLY | O_DIRECTORY).value())) {}
  os::TempDir dir_;
  os::UniqueFd fd_;
};

TEST_F(LayerMarksTest, WhiteoutIsMadeAndSeen) {
  EXPECT_FALSE(has_whiteout(fd_.get(), "w").value());
  ASSERT_TRUE(make_whiteout(fd_.get(), "w").ok());
  EXPECT_TRUE(has_whiteout(fd_.get(), "w").value());
  EXPECT_EQ(make_whiteout(fd_.get(), "w").error().error_number(), EEXIST);
}

TEST_F(LayerMarksTest, OtherObjectsAreNoWhiteouts) {
  ASSERT_EQ(::mkdirat(fd_.get(), "d", 0700), 0);
  ASSERT_EQ(::symlinkat("w", fd_.get(), "l"), 0);
  ASSERT_EQ(::mkfifoat(fd_.get(), "p", 0600), 0);
  ASSERT_TRUE(make_whiteout(fd_.get(), "w").ok());
  for (const char* name : {"d", "l", "p"})
    EXPECT_FALSE(has_whiteout(fd_.get(), name).value()) << name;
  struct stat st {};
  st.st_mode = S_IFCHR;
  st.st_rdev = 0x103;  // /dev/null
  EXPECT_FALSE(is_whiteout(st));
}

TEST_F(LayerMarksTest, OpaqueMarkIsFoundInBothNamespaces) {
  for (const MarkNamespace where : {MarkNamespace::kUser, MarkNamespace::kTrusted}) {
    if (where == MarkNamespace::kTrusted && own_mark_namespace() != where) continue;
    const std::string name = where == MarkNamespace::kUser ? "u" : "t";
    ASSERT_EQ(::mkdirat(fd_.get(), name.c_str(), 0700), 0);
    const os::UniqueFd dir(::openat(fd_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    EXPECT_FALSE(is_opaque(dir.get()).value());
    ASSERT_TRUE(set_opaque(dir.get(), where).ok());
    EXPECT_TRUE(is_opaque(dir.get()).value());
  }
}

}  // namespace
}  // namespace cofferdam::layer
