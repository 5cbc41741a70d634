#include <gtest/gtest.h>

#include <algorithm>

#include "orchestrator/engine/launcher.h"
#include "orchestrator/engine/system_files.h"

namespace cofferdam::orchestrator {
namespace {

using Words = std::vector<std::string>;

Plan make_plan() {
  Plan plan;
  plan.user_name = "u";
  plan.home = "/home/u";
  plan.hostname = "box";
  plan.ids.inside_uid = 1000;
  plan.ids.inside_gid = 1000;
  plan.mounts = {{"workspace", "/home/u/project", "/home/u/project", "/layer", true},
                 {"home", "/home/u", {}, "/layer/home", true},
                 {"opt", "/opt", "/opt", {}, false}};
  return plan;
}

SystemTrees make_trees() {
  return {{"/usr", "/etc/ssl/certs"}, {{"/bin", "usr/bin"}}, {"/usr/lib/a.sock"}};
}

Words options() {
  const Words files = {"/etc/passwd", "/home/u/.npmrc"};
  return make_launcher_options(make_plan(), make_trees(),
                               stage_etc(make_plan(), make_trees(), files), files, {"/proc"});
}

// The position of `part` in `words`, or -1.
long position(const Words& words, const Words& part) {
  const auto found = std::search(words.begin(), words.end(), part.begin(), part.end());
  return found == words.end() ? -1 : found - words.begin();
}

TEST(Launcher, GivesUpEveryRightAndNamespace) {
  const Words words = options();
  for (const char* option :
       {"--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
        "--disable-userns", "--die-with-parent", "--new-session", "--clearenv", "--as-pid-1"}) {
    EXPECT_GE(position(words, {option}), 0) << option;
  }
  EXPECT_GE(position(words, {"--cap-drop", "ALL"}), 0);
  EXPECT_EQ(position(words, {"--share-net"}), -1);
  EXPECT_EQ(position(words, {"--cap-add"}), -1);
}

TEST(Launcher, BindsNothingOfTheHostForWriting) {
  const Words words = options();
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] != "--bind" && words[i] != "--dev-bind") continue;
    EXPECT_EQ(words[i + 1].rfind("/run/", 0), 0U) << words[i + 1];
  }
}

TEST(Launcher, MountsTheOuterDirectoryFirst) {
  const Words words = options();
  const long home = position(words, {"--bind", "/run/mounts/home", "/home/u"});
  const long workspace = position(words, {"--bind", "/run/mounts/workspace", "/home/u/project"});
  ASSERT_GE(home, 0);
  ASSERT_GE(workspace, 0);
  EXPECT_LT(home, workspace);
  EXPECT_GE(position(words, {"--ro-bind", "/run/mounts/opt", "/opt"}), 0);
}

TEST(Launcher, MasksSocketsAfterTheTreeThatHoldsThem) {
  const Words words = options();
  const long mask = position(words, {"--ro-bind", "/run/empty", "/usr/lib/a.sock"});
  EXPECT_GT(mask, position(words, {"--ro-bind", "/usr", "/usr"}));
}

TEST(Launcher, MakesTheRootReadOnlyLast) {
  const Words words = options();
  const long root = position(words, {"--remount-ro", "/"});
  ASSERT_GE(root, 0);
  for (const Words& earlier :
       {Words{"--ro-bind", "/run/files/1", "/home/u/.npmrc"},
        Words{"--ro-bind", "/run/etc", "/etc"}, Words{"--bind", "/run/tmp", "/tmp"},
        Words{"--remount-ro", "/dev"}, Words{"--ro-bind", "/proc/sys", "/proc/sys"}}) {
    const long at = position(words, earlier);
    EXPECT_GE(at, 0) << earlier.back();
    EXPECT_LT(at, root) << earlier.back();
  }
}

TEST(Launcher, MakesParentsReadableButNeverBelowABoundTree) {
  const Words words = options();
  EXPECT_GE(position(words, {"--perms", "0755", "--dir", "/home"}), 0);
  EXPECT_EQ(position(words, {"--dir", "/home/u"}), -1);
  EXPECT_EQ(position(words, {"--dir", "/usr"}), -1);
}

TEST(Launcher, BindsEtcAsOne) {
  SystemTrees trees = make_trees();
  trees.symlinks.emplace_back("/etc/localtime", "/usr/share/zoneinfo/UTC");
  const Words files = {"/etc/passwd", "/etc/ssl/certs/own.pem", "/home/u/.npmrc"};
  const StagedEtc etc = stage_etc(make_plan(), trees, files);
  EXPECT_EQ(etc.binds, Words{"/etc/ssl/certs"});
  EXPECT_EQ(etc.files, Words{"/etc/passwd"});
  ASSERT_EQ(etc.symlinks.size(), 1U);
  const Words words = make_launcher_options(make_plan(), trees, etc, files, {});
  const long bound = position(words, {"--ro-bind", "/run/etc", "/etc"});
  ASSERT_GE(bound, 0);
  EXPECT_GT(position(words, {"--ro-bind", "/run/files/1", "/etc/ssl/certs/own.pem"}), bound);
  EXPECT_EQ(position(words, {"/etc/passwd"}), -1);
  EXPECT_EQ(position(words, {"/etc/localtime"}), -1);
  EXPECT_EQ(position(words, {"--dir", "/etc"}), -1);
}

TEST(Launcher, ReplacesNothingOfEtcWhereAMountGoesThere) {
  Plan plan = make_plan();
  plan.mounts.push_back({"mount1", "/etc/app", "/data", {}, false});
  const Words files = {"/etc/passwd"};
  const StagedEtc etc = stage_etc(plan, make_trees(), files);
  EXPECT_TRUE(etc.empty());
  const Words words = make_launcher_options(plan, make_trees(), etc, files, {});
  EXPECT_EQ(position(words, {"/run/etc"}), -1);
  EXPECT_GE(position(words, {"--ro-bind", "/etc/ssl/certs", "/etc/ssl/certs"}), 0);
  EXPECT_GE(position(words, {"--ro-bind", "/run/files/0", "/etc/passwd"}), 0);
  EXPECT_GE(position(words, {"--perms", "0755", "--dir", "/etc"}), 0);
}

TEST(Launcher, LeavesNothingWritableBesideAMountBelowTmp) {
  Plan plan = make_plan();
  plan.mounts = {{"workspace", "/tmp/a/b/project", {}, "/layer", true},
                 {"home", "/tmp/home", {}, "/layer/home", true},
                 {"deep", "/tmp/home/x/y", {}, "/layer/deep", true}};
  const Words words = make_launcher_options(plan, make_trees(), {}, {}, {});
  const long made = position(words, {"--tmpfs", "/tmp/a"});
  const long bound = position(words, {"--bind", "/run/mounts/workspace", "/tmp/a/b/project"});
  const long sealed = position(words, {"--remount-ro", "/tmp/a"});
  EXPECT_GT(made, position(words, {"--bind", "/run/tmp", "/tmp"}));
  EXPECT_LT(made, bound);
  EXPECT_LT(bound, sealed);
  EXPECT_EQ(position(words, {"--tmpfs", "/tmp/home"}), -1);
}

TEST(EtcFiles, NameTheUserAndTheGateAndResolveTheHostname) {
  const auto files = make_etc_files(make_plan());
  EXPECT_EQ(files.at("/etc/resolv.conf"), "nameserver 127.0.0.1\n");
  EXPECT_NE(files.at("/etc/passwd").find("u:x:1000:1000::/home/u:"), std::string::npos);
  EXPECT_NE(files.at("/etc/hosts").find("127.0.0.1 localhost box\n"), std::string::npos);
  EXPECT_NE(files.at("/etc/hosts").find("::1 localhost"), std::string::npos);
  EXPECT_NE(files.at("/etc/nsswitch.conf").find("hosts: files dns\n"), std::string::npos);
}

TEST(EtcFiles, HaveOneLinePerUserWhenTheUserIsRoot) {
  Plan plan = make_plan();
  plan.user_name = "root";
  plan.ids.inside_uid = plan.ids.inside_gid = 0;
  const std::string passwd = make_etc_files(plan).at("/etc/passwd");
  EXPECT_EQ(passwd.find("root:x:0:0:"), passwd.rfind("root:x:0:0:"));
  EXPECT_NE(passwd.find("root:x:0:0:"), std::string::npos);
}

}  // namespace
}  // namespace cofferdam::orchestrator
