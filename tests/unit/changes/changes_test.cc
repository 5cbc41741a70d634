#include "orchestrator/changes/changes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "orchestrator/changes/change_json.h"
#include "tests/unit/changes/workbench.h"

namespace cofferdam::orchestrator::changes {
namespace {

using fakes::directory;
using fakes::file;
using fakes::LayerBuilder;
using fakes::link;
using fakes::Tree;

const Tree& base() {
  static const Tree kBase = {
      {"a.txt", file("one\n")}, {"b.sh", file("#!/bin/sh\n", 0755)},
      {"dir", directory()},     {"dir/x", file("x")},
      {"dir/sub", directory()}, {"dir/sub/y", file("y")},
      {"link", link("a.txt")},  {"empty", directory()},
  };
  return kBase;
}

TEST(Changes, EveryKindIsTold) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.put("a.txt", file("two\n"));
  layer.chmod("b.sh", 0644);
  layer.put("link", link("b.sh"));
  layer.put("new", file("n"));
  layer.put("newdir", directory());
  layer.put("newdir/deep", directory(0700));
  layer.remove("dir");
  layer.put("dir", file("a file now"));
  layer.remove("empty");
  EXPECT_EQ(
      listing(changes_of(layer)),
      "modified a.txt\nmode b.sh\ntype dir\ndeleted dir/sub\ndeleted dir/sub/y\ndeleted dir/x\n"
      "deleted empty\nsymlink link\nadded new\nadded newdir\nadded newdir/deep\n");
}

TEST(Changes, HashAndModeAreThoseOfBothSides) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.put("a.txt", file("two\n", 0600));
  const ChangeSet set = changes_of(layer);
  ASSERT_EQ(set.changes.size(), 1U);
  const Change& change = set.changes[0];
  EXPECT_EQ(change.base.sha256, sha256("one\n"));
  EXPECT_EQ(change.theirs.sha256, sha256("two\n"));
  EXPECT_EQ(change.base.mode, 0644U);
  EXPECT_EQ(change.theirs.mode, 0600U);
  EXPECT_EQ(to_json(change)["theirs"]["mode"], "0600");
}

TEST(Changes, WhatWasTouchedAndIsTheSameAgainIsNoChange) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.put("a.txt", file("one\n"));
  layer.put("gone", file("x"));
  layer.remove("gone");
  layer.remove("dir/x");
  layer.put("dir/x", file("x"));
  layer.remove("dir/sub");
  layer.put("dir/sub", directory());
  layer.put("dir/sub/y", file("y"));
  EXPECT_EQ(listing(changes_of(layer)), "");
}

TEST(Changes, BothFormsOfAWhiteoutAreADeletion) {
  for (const bool rows : {false, true}) {
    const Workbench bench(base());
    LayerBuilder layer(bench.workspace());
    layer.whiteouts_in_meta = rows;
    layer.remove("dir");
    layer.remove("a.txt");
    EXPECT_EQ(listing(changes_of(layer)),
              "deleted a.txt\ndeleted dir\ndeleted dir/sub\ndeleted dir/sub/y\ndeleted dir/x\n");
  }
}

TEST(Changes, WhatAnOpaqueDirectoryCoversIsDeleted) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.remove("dir");
  layer.put("dir", directory());
  layer.put("dir/new", file("n"));
  EXPECT_EQ(listing(changes_of(layer)),
            "added dir/new\ndeleted dir/sub\ndeleted dir/sub/y\ndeleted dir/x\n");
}

TEST(Changes, ARenamedDirectoryIsADeletionAndACreation) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.rename("dir", "moved");
  EXPECT_EQ(listing(changes_of(layer)),
            "deleted dir\ndeleted dir/sub\ndeleted dir/sub/y\ndeleted dir/x\n"
            "added moved\nadded moved/sub\nadded moved/sub/y\nadded moved/x\n");
}

TEST(Changes, SpecialFilesAreLeftOutWithTheirReason) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.put("pipe", {fakes::NodeKind::kFifo, 0644, {}});
  const ChangeSet set = changes_of(layer);
  EXPECT_TRUE(set.changes.empty());
  ASSERT_EQ(set.omissions.size(), 1U);
  EXPECT_EQ(set.omissions[0].path, "pipe");
  EXPECT_EQ(set.omissions[0].reason, "special_file");
}

TEST(Changes, NothingOfAGitDirectoryIsAChangeWhateverItIsSpelled) {
  Tree tree = base();
  tree[".git"] = directory();
  tree[".git/config"] = file("[core]\n");
  const Workbench bench(tree);
  LayerBuilder layer(bench.workspace());
  layer.put(".git/config", file("[core]\n fsmonitor = evil\n"));
  layer.put(".git/hooks", directory());
  layer.put(".git/hooks/pre-commit", file("evil", 0755));
  for (const std::string name : {".GIT", "git~1", ".g\xe2\x80\x8cit", ".git "}) {
    layer.put("dir/" + name, directory());
    layer.put("dir/" + name + "/config", file("evil"));
  }
  layer.put("dir/ok", file("fine"));
  const ChangeSet set = changes_of(layer);
  EXPECT_EQ(listing(set), "added dir/ok\n");
  ASSERT_EQ(set.omissions.size(), 5U);
  for (const Omission& omission : set.omissions) EXPECT_EQ(omission.reason, "git_directory");
  EXPECT_EQ(set.omissions[0].path, ".git");
  EXPECT_EQ(set.omissions[0].entries, 4U);
}

TEST(Changes, ExtendedAttributesThatStayBehindAreSaid) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.put("new", file("x"));
  layer.put("a.txt", file("changed"));
  const auto set_on = [](const std::filesystem::path& path, const char* name) {
    return ::setxattr(path.c_str(), name, "v", 1, 0) == 0;
  };
  if (!set_on(layer.sandbox() / "upper/new", "user.note")) GTEST_SKIP() << "no user.* here";
  ASSERT_TRUE(set_on(layer.sandbox() / "upper/new", "user.overlay.x"));
  ASSERT_TRUE(set_on(layer.sandbox() / "upper/a.txt", "user.note"));
  ASSERT_TRUE(set_on(bench.workspace() / "a.txt", "user.note"));
  // Without the key the workload had none.
  EXPECT_TRUE(changes_of(layer).omissions.empty());
  layer.set_rules(Json::array(), true);
  const ChangeSet set = changes_of(layer);
  EXPECT_EQ(set.changes.size(), 2U);
  ASSERT_EQ(set.omissions.size(), 1U);
  EXPECT_EQ(set.omissions[0].path, "new");
  EXPECT_EQ(set.omissions[0].reason, "xattr");
  EXPECT_EQ(set.omissions[0].detail, "1 extended attribute stays behind");
}

TEST(Changes, ExtendedAttributesThatWereTakenAwayAreSaid) {
  const Workbench bench(base());
  if (::setxattr((bench.workspace() / "a.txt").c_str(), "user.note", "v", 1, 0) != 0) {
    GTEST_SKIP() << "no user.* here";
  }
  LayerBuilder layer(bench.workspace());
  layer.put("a.txt", file("changed"));
  layer.set_rules(Json::array(), true);
  const ChangeSet set = changes_of(layer);
  ASSERT_EQ(set.omissions.size(), 1U);
  EXPECT_EQ(set.omissions[0].path, "a.txt");
  EXPECT_EQ(set.omissions[0].detail, "its extended attributes stay as they are");
}

TEST(Changes, HiddenPathsAreNeverChanges) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.set_rules(Json::array({{{"id", "default:.env"}, {"action", "hide"}, {"pattern", ".env"}}}));
  layer.put("dir/.env", file("TOKEN=x"));
  const ChangeSet set = changes_of(layer);
  EXPECT_TRUE(set.changes.empty());
  ASSERT_EQ(set.omissions.size(), 1U);
  EXPECT_EQ(set.omissions[0].reason, "hidden");
  EXPECT_NE(set.omissions[0].detail.find("default:.env"), std::string::npos);
}

TEST(Changes, OnlyOurIgnoreRulesCountAndTrackedFilesAreNeverIgnored) {
  const Workbench bench({{".gitignore", file("node_modules/\n*.log\nbuild/\n")},
                         {"build", directory()},
                         {"build/tracked.bin", file("1")},
                         {"src.c", file("int x;\n")}});
  const std::string git = "git -C " + bench.workspace().string() + " -c init.defaultBranch=main ";
  ASSERT_EQ(std::system((git + "init -q && " + git + "add -f . >/dev/null").c_str()), 0);
  LayerBuilder layer(bench.workspace());
  layer.put("node_modules", directory());
  layer.put("node_modules/left", directory());
  layer.put("node_modules/left/index.js", file("12345"));
  layer.put("debug.log", file("x"));
  layer.put("build/tracked.bin", file("2"));
  layer.put("build/other.o", file("o"));
  // The sandbox would like its change to go unseen.
  layer.put(".gitignore", file("*.c\n"));
  layer.put("src.c", file("int y;\n"));
  const ChangeSet set = changes_of(layer);
  EXPECT_EQ(listing(set), "modified .gitignore\nmodified build/tracked.bin\nmodified src.c\n");
  ASSERT_EQ(set.ignored.size(), 3U);
  EXPECT_EQ(set.ignored[0].path, "build/other.o");
  EXPECT_EQ(set.ignored[1].path, "debug.log");
  EXPECT_EQ(set.ignored[2].path, "node_modules");
  EXPECT_EQ(set.ignored[2].entries, 3U);
  EXPECT_EQ(set.ignored[2].bytes, 5U);
  EXPECT_EQ(set.ignored_entries(), 5U);
}

TEST(Changes, SetIdBitsThatTheBaseDidNotHaveOnTheSameContentStayBehind) {
  Tree tree = base();
  tree["su"] = file("x", 04755);
  tree["kept"] = file("x", 04755);
  tree["group"] = directory(02755);
  const Workbench bench(tree);
  LayerBuilder layer(bench.workspace());
  layer.put("su", file("y", 04755));
  layer.put("b.sh", file("z", 06755));
  layer.put("new", file("n", 04711));
  layer.chmod("kept", 04700);
  layer.chmod("group", 02700);
  const ChangeSet set = changes_of(layer);
  ASSERT_EQ(set.changes.size(), 5U);
  EXPECT_EQ(set.changes[0].theirs.mode, 0755U);
  EXPECT_EQ(set.changes[1].theirs.mode, 02700U);
  EXPECT_EQ(set.changes[2].theirs.mode, 04700U);
  EXPECT_EQ(set.changes[3].theirs.mode, 0711U);
  EXPECT_EQ(set.changes[3].risk.rule, "set-id");
  // Other content is not what the base's owner gave the right to.
  EXPECT_EQ(set.changes[4].path, "su");
  EXPECT_EQ(set.changes[4].theirs.mode, 0755U);
  EXPECT_EQ(set.changes[4].risk.rule, "set-id");
}

TEST(Changes, NamesThatAMergeGivesStayBehind) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.put(".cofferdam-merge-0011223344556677", directory());
  layer.put(".cofferdam-merge-0011223344556677/0.new", file("x"));
  layer.put("dir/.cofferdam-merge-x", file("not at the top"));
  const ChangeSet set = changes_of(layer);
  EXPECT_EQ(listing(set), "added dir/.cofferdam-merge-x\n");
  ASSERT_EQ(set.omissions.size(), 1U);
  EXPECT_EQ(set.omissions[0].reason, "reserved");
  EXPECT_TRUE(merge_of(layer).written);
  EXPECT_EQ(merge_of(layer).exit_status(), 0);
}

TEST(Changes, HolesWithoutEndAreNotRead) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.put("small", file("x"));
  layer.put("huge", file("x"));
  std::filesystem::resize_file(layer.sandbox() / "upper/small", 1U << 20U);
  std::filesystem::resize_file(layer.sandbox() / "upper/huge", std::uint64_t{1} << 40U);
  const ChangeSet set = changes_of(layer);
  EXPECT_EQ(listing(set), "added small\n");
  ASSERT_EQ(set.omissions.size(), 1U);
  EXPECT_EQ(set.omissions[0].path, "huge");
  EXPECT_EQ(set.omissions[0].reason, "mostly_holes");
}

TEST(Changes, AnUpperObjectWithoutARecordHasAnUnknownBase) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.put("dir/new", file("n"));
  layer.forge_upper("dir/forged", file("f"));
  layer.forge_upper("a.txt", file("forged"));
  const ChangeSet set = changes_of(layer);
  ASSERT_EQ(set.changes.size(), 3U);
  EXPECT_FALSE(set.changes[0].base_known);
  EXPECT_FALSE(set.changes[1].base_known);
  EXPECT_TRUE(set.changes[2].base_known);
}

TEST(Changes, WhatLiesInANewDirectoryWasNotThereBefore) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.put("moved", directory());
  layer.forge_upper("moved/by-rename", file("no record of its own"));
  const ChangeSet set = changes_of(layer);
  ASSERT_EQ(set.changes.size(), 2U);
  EXPECT_TRUE(set.changes[1].base_known);
}

TEST(Changes, WhatAnOpaqueDirectoryHoldsWithoutARecordIsNew) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.remove("dir");
  layer.put("dir", directory());
  layer.forge_upper("dir/by-rename", file("no record of its own"));
  const ChangeSet set = changes_of(layer);
  ASSERT_FALSE(set.changes.empty());
  EXPECT_EQ(set.changes[0].path, "dir/by-rename");
  EXPECT_TRUE(set.changes[0].base_known);
}

TEST(Changes, LinksInTheUpperLayerAreDataEvenWhereDirectoriesBelong) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.remove("dir");
  layer.put("dir", link("/etc"));
  const ChangeSet set = changes_of(layer);
  EXPECT_EQ(set.changes[0].theirs.sha256, sha256("/etc"));
  EXPECT_EQ(set.changes[0].risk.level, RiskLevel::kNeedsAllowance);
  EXPECT_EQ(listing(set), "type dir\ndeleted dir/sub\ndeleted dir/sub/y\ndeleted dir/x\n");
}

TEST(Changes, ADeepTreeCostsNoStackAndTooLongAPathIsToldApart) {
  const Workbench bench({});
  LayerBuilder layer(bench.workspace());
  // Made by descriptors: the paths are longer than the kernel takes.
  os::UniqueFd fd = std::move(*os::open_file(layer.sandbox() / "upper", O_RDONLY | O_DIRECTORY));
  const std::string name(200, 'd');
  for (int depth = 0; depth < 60; ++depth) {
    ASSERT_EQ(::mkdirat(fd.get(), name.c_str(), 0755), 0);
    fd.reset(::openat(fd.get(), name.c_str(), O_RDONLY | O_DIRECTORY));
    ASSERT_TRUE(fd);
  }
  const ChangeSet set = changes_of(layer);
  EXPECT_EQ(set.changes.size(), 20U);  // 20 * 201 - 1 <= 4095
  ASSERT_EQ(set.omissions.size(), 1U);
  EXPECT_EQ(set.omissions[0].reason, "path_too_long");
}

TEST(Changes, NamesAreBytes) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.put("new\nline \xff", file("x"));
  const ChangeSet set = changes_of(layer);
  ASSERT_EQ(set.changes.size(), 1U);
  const Json json = to_json(set.changes[0]);
  EXPECT_EQ(*path_from_json(json), "new\nline \xff");
  EXPECT_TRUE(json.contains("path_hex"));
}

TEST(Changes, RiskyOnesComeFirst) {
  const Workbench bench({});
  LayerBuilder layer(bench.workspace());
  layer.put("a", file("x"));
  layer.put("package.json", file("{}"));
  layer.put("z.pth", file("import evil"));
  const ChangeSet set = changes_of(layer);
  const auto order = set.by_risk();
  EXPECT_EQ(set.changes[order[0]].path, "z.pth");
  EXPECT_EQ(set.changes[order[1]].path, "package.json");
  EXPECT_EQ(set.changes[order[2]].path, "a");
}

TEST(Changes, WithoutTheRulesOfTheRunNothingIsJudged) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.put("a.txt", file("x"));
  std::filesystem::remove(layer.sandbox() / "fs.json");
  EXPECT_FALSE(compute_changes(layer.record()).ok());
}

TEST(Selectors, ArePathsOfTheWorkspaceWhereverTheUserStands) {
  const struct {
    const char* argument;
    const char* directory;
    const char* expected;  // nullptr: refused
  } cases[] = {
      {"a/b", "/w", "a/b"},  {"b", "/w/a", "a/b"},    {"./x/", "/w", "x"},
      {"../c", "/w/a", "c"}, {"/w/d", "/", "d"},      {".", "/w", ""},
      {"..", "/w", nullptr}, {"/etc", "/w", nullptr}, {"../w2/x", "/w", nullptr},
      {"", "/w", nullptr},
  };
  for (const auto& c : cases) {
    const auto path = selector_from_argument(c.argument, c.directory, "/w");
    ASSERT_EQ(path.ok(), c.expected != nullptr) << c.argument;
    if (path.ok()) {
      EXPECT_EQ(*path, c.expected);
    }
  }
  EXPECT_TRUE(is_selected("a/b", {"a"}));
  EXPECT_FALSE(is_selected("ab", {"a"}));
  EXPECT_TRUE(is_selected("x", {""}));
}

}  // namespace
}  // namespace cofferdam::orchestrator::changes
