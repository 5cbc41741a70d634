#include "orchestrator/workspace.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/os/files.h"

namespace cofferdam::orchestrator {
namespace {

namespace fs = std::filesystem;

class WorkspaceTest : public ::testing::Test {
 protected:
  WorkspaceTest() : temporary_(std::move(*os::TempDir::create("/tmp", "workspace-test-"))) {
    root_ = fs::canonical(temporary_.path());
    home_ = root_ / "home" / "u";
    state_ = home_ / ".local" / "state" / "cofferdam";
    fs::create_directories(state_);
    project_ = home_ / "project";
    fs::create_directories(project_ / "a" / "b");
  }

  Result<Workspace> find(const fs::path& directory, const fs::path& asked = {}) const {
    return find_workspace({asked, directory, home_, state_});
  }

  static void write(const fs::path& file, const std::string& text) {
    fs::create_directories(file.parent_path());
    ASSERT_TRUE(os::write_file_atomic(file, text).ok());
  }

  void make_git_directory(const fs::path& path) const {
    write(path / "HEAD", "ref: refs/heads/main\n");
    fs::create_directories(path / "objects");
    fs::create_directories(path / "refs");
  }

  os::TempDir temporary_;
  fs::path root_;
  fs::path home_;
  fs::path state_;
  fs::path project_;
};

TEST_F(WorkspaceTest, IsTheEnclosingGitTopLevelElseTheCurrentDirectory) {
  EXPECT_EQ(find(project_ / "a" / "b")->path, project_ / "a" / "b");
  fs::create_directories(project_ / ".git");
  const auto found = find(project_ / "a" / "b");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->path, project_);
  EXPECT_EQ(found->directory, project_ / "a" / "b");
  EXPECT_EQ(find(project_ / "a", "b")->path, project_ / "a" / "b");
  EXPECT_EQ(find(root_, project_)->directory, project_);
}

TEST_F(WorkspaceTest, AHomeThatIsARepositoryIsNotTakenForOne) {
  fs::create_directories(home_ / ".git");
  EXPECT_EQ(find(project_)->path, project_);
}

TEST_F(WorkspaceTest, RefusesWhatNoSandboxMayWorkOn) {
  fs::create_directories(state_ / "sandboxes");
  ASSERT_EQ(::symlink(home_.c_str(), (root_ / "link").c_str()), 0);
  for (const fs::path& path :
       {fs::path("/"), home_, home_.parent_path(), root_, home_ / ".local", state_,
        state_ / "sandboxes", root_ / "link", fs::path("/usr"), fs::path("/etc"), fs::path("/tmp"),
        fs::path("/proc/self"), fs::path("/etc/ssl"), fs::path("/dev"), root_ / "nowhere"}) {
    EXPECT_FALSE(find(project_, path).ok()) << path;
  }
  EXPECT_FALSE(find(home_).ok());
  EXPECT_TRUE(find(project_, project_).ok());
}

TEST_F(WorkspaceTest, RefusesAPathThatCouldNotBePrinted) {
  const fs::path bad = home_ / "bad\x1b[31m";
  fs::create_directories(bad);
  EXPECT_FALSE(find(bad).ok());
}

TEST_F(WorkspaceTest, ALinkedWorktreeBringsItsCommonGitDirectory) {
  const fs::path common = home_ / "main" / ".git";
  make_git_directory(common);
  write(common / "worktrees" / "w" / "gitdir", (project_ / ".git").string() + "\n");
  write(project_ / ".git", "gitdir: " + (common / "worktrees" / "w").string() + "\n");
  const auto found = find(project_ / "a");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->path, project_);
  EXPECT_EQ(found->git_directory, common);
  EXPECT_TRUE(found->notes.empty());
}

TEST_F(WorkspaceTest, AGitFileThatLeadsToAFifoStopsNothing) {
  const fs::path own = project_ / "x" / "worktrees" / "w";
  fs::create_directories(own);
  ASSERT_EQ(::mkfifo((own / "gitdir").c_str(), 0600), 0);
  write(project_ / ".git", "gitdir: x/worktrees/w\n");
  const auto found = find(project_);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->notes.size(), 1U);
}

TEST_F(WorkspaceTest, AGitFileThatNamesAnothersRepositoryIsNotBelieved) {
  const fs::path common = home_ / "secret" / ".git";
  make_git_directory(common);
  write(common / "worktrees" / "w" / "gitdir", (home_ / "elsewhere" / ".git").string() + "\n");
  const std::string texts[] = {
      "gitdir: " + (common / "worktrees" / "w").string() + "\n",  // points back to another place
      "gitdir: " + common.string() + "\n",                        // no worktree of it
      "gitdir: " + (home_ / ".ssh").string() + "\n",
      "gitdir: ../nowhere\n",
      "not a git file\n",
  };
  for (const std::string& text : texts) {
    write(project_ / ".git", text);
    const auto found = find(project_);
    ASSERT_TRUE(found.ok()) << text;
    EXPECT_FALSE(found->git_directory.has_value()) << text;
    EXPECT_EQ(found->notes.size(), 1U) << text;
  }
}

}  // namespace
}  // namespace cofferdam::orchestrator
