// Ignored content taken home in bulk.
#include <gtest/gtest.h>

#include <cstdlib>

#include "orchestrator/changes/recovery.h"
#include "orchestrator/changes/undo.h"
#include "tests/unit/changes/workbench.h"

namespace cofferdam::orchestrator::changes {
namespace {

using fakes::directory;
using fakes::file;
using fakes::LayerBuilder;
using fakes::link;
using fakes::Tree;

// A repository of the user that ignores deps/.
class BulkBench {
 public:
  explicit BulkBench(Tree extra = {}) : bench_(with(std::move(extra))), layer_(bench_.workspace()) {
    const std::string git = "git -C '" + bench_.workspace().string() + "' init -q >/dev/null 2>&1";
    EXPECT_EQ(std::system(git.c_str()), 0);
  }

  const Workbench& bench() const { return bench_; }
  LayerBuilder& layer() { return layer_; }
  Tree ours() const {
    Tree tree = bench_.ours();
    for (const auto& [path, node] : fakes::subtree(tree, ".git")) tree.erase(path);
    return tree;
  }

 private:
  static Tree with(Tree extra) {
    extra[".gitignore"] = file("deps/\n");
    extra["a"] = file("one\n");
    return extra;
  }
  Workbench bench_;
  LayerBuilder layer_;
};

void put_dependencies(LayerBuilder& layer) {
  layer.put("deps", directory());
  layer.put("deps/left", directory(0700));
  layer.put("deps/left/index.js", file("1"));
  layer.put("deps/left/run", file("#!\n", 0775));
  layer.put("deps/link", link("left/run"));
}

MergeOptions with_ignored(std::vector<std::string> paths = {}) {
  MergeOptions options;
  options.ignored = true;
  options.paths = std::move(paths);
  return options;
}

TEST(Bulk, AFolderThatNeitherSideHadIsOneChangeThatComesHomeWhole) {
  for (const bool outside : {false, true}) {
    SCOPED_TRACE(outside);
    BulkBench b;
    b.layer().put("a", file("two\n"));
    put_dependencies(b.layer());
    const Tree before = b.ours();
    MergeOptions options = with_ignored({"deps"});
    options.objects_in_workspace = outside;
    const MergeReport report = merge_of(b.layer(), options);
    ASSERT_EQ(report.exit_status(), 0) << describe(report, false);
    EXPECT_EQ(item_of(report, "deps")->change.bulk_entries, 5U);
    EXPECT_EQ(report.count(Outcome::kTaken), 1U);
    Tree expected = b.layer().theirs();
    for (const auto& [path, node] : fakes::subtree(expected, ".git")) expected.erase(path);
    expected["a"] = file("one\n");
    expected["deps/left/run"].mode = 0755;  // by the umask
    EXPECT_EQ(b.ours(), expected) << fakes::difference(b.ours(), expected);
    const auto undone = undo_merge(b.layer().record());
    ASSERT_TRUE(undone.ok() && undone->exit_status() == 0);
    EXPECT_EQ(b.ours(), before);
  }
}

TEST(Bulk, IgnoredContentStaysWhereItIsUnlessAskedFor) {
  BulkBench b;
  put_dependencies(b.layer());
  const Tree before = b.ours();
  const MergeReport report = merge_of(b.layer());
  EXPECT_EQ(b.ours(), before);
  ASSERT_EQ(report.ignored.size(), 1U);
  EXPECT_EQ(report.ignored[0].entries, 5U);
}

TEST(Bulk, OnePathBelowAnIgnoredFolderCanBeTakenAlone) {
  BulkBench b({{"deps", directory()}, {"deps/mine", file("mine")}});
  put_dependencies(b.layer());
  b.layer().put("deps/other", directory());
  b.layer().put("deps/other/x", file("x"));
  const MergeReport report = merge_of(b.layer(), with_ignored({"deps/left"}));
  ASSERT_EQ(report.exit_status(), 0) << describe(report, false);
  EXPECT_TRUE(b.ours().contains("deps/left/run"));
  EXPECT_TRUE(b.ours().contains("deps/mine"));
  EXPECT_FALSE(b.ours().contains("deps/other"));
}

TEST(Bulk, WhatIsThereAlreadyIsComparedFileByFile) {
  BulkBench b({{"deps", directory()}, {"deps/mine", file("mine")}, {"deps/both", file("start")}});
  b.layer().put("deps/both", file("theirs"));
  b.layer().put("deps/new", file("new"));
  b.bench().edit("deps/both", file("ours"));
  const MergeReport refused = merge_of(b.layer(), with_ignored());
  EXPECT_EQ(refused.exit_status(), 1);
  EXPECT_EQ(item_of(refused, "deps/both")->outcome, Outcome::kConflict);
  EXPECT_FALSE(b.ours().contains("deps/new"));
  MergeOptions options = with_ignored();
  options.take = {{"deps/both", Side::kOurs}};
  EXPECT_EQ(merge_of(b.layer(), options).exit_status(), 0);
  EXPECT_TRUE(b.ours().contains("deps/new"));
  EXPECT_EQ(b.ours().at("deps/both").content, "ours");
}

TEST(Bulk, WhatAMergeLeavesBehindIsLeftBehindInAFolderToo) {
  const struct {
    const char* name;
    Tree theirs;
    const char* gone;  // must not come home
    bool refused;      // the whole merge
  } cases[] = {
      {"git directory",
       {{"deps/p", directory()}, {"deps/p/.git", directory()}, {"deps/p/.git/config", file("x")}},
       "deps/p/.git",
       false},
      {"special file", {{"deps/fifo", {fakes::NodeKind::kFifo, 0644, {}}}}, "deps/fifo", false},
      {"planted repository",
       {{"deps/p", directory()},
        {"deps/p/HEAD", file("ref: x\n")},
        {"deps/p/objects", directory()},
        {"deps/p/refs", directory()}},
       "deps/p/HEAD",
       true},
      {"a link that leads out", {{"deps/out", link("/etc")}}, "deps/out", true},
      {"a file that runs by itself", {{"deps/.envrc", file("x")}}, "deps/.envrc", true},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    BulkBench b;
    put_dependencies(b.layer());
    for (const auto& [path, node] : c.theirs) b.layer().put(path, node);
    const Tree before = b.ours();
    const MergeReport report = merge_of(b.layer(), with_ignored());
    EXPECT_EQ(report.exit_status(), c.refused ? 1 : 0) << describe(report, false);
    EXPECT_FALSE(b.ours().contains(c.gone));
    EXPECT_EQ(b.ours() == before, c.refused);
    EXPECT_EQ(b.ours().contains("deps/left/run"), !c.refused);
  }
}

TEST(Bulk, HolesWithoutEndAreNotWrittenOutEither) {
  BulkBench b;
  put_dependencies(b.layer());
  b.layer().put("deps/huge", file(""));
  std::filesystem::resize_file(b.layer().sandbox() / "upper/deps/huge", std::uintmax_t{1} << 40U);
  // Asked first: nothing is written where it would be.
  MergeOptions dry = with_ignored();
  dry.dry_run = true;
  ASSERT_EQ(merge_of(b.layer(), dry).omissions.size(), 1U);
  const MergeReport report = merge_of(b.layer(), with_ignored());
  EXPECT_EQ(report.exit_status(), 0) << describe(report, false);
  ASSERT_EQ(report.omissions.size(), 1U);
  EXPECT_EQ(report.omissions[0].path, "deps/huge");
  EXPECT_EQ(report.omissions[0].reason, "mostly_holes");
  EXPECT_TRUE(b.ours().contains("deps/left/run"));
  EXPECT_FALSE(b.ours().contains("deps/huge"));
}

TEST(Bulk, RiskyOnesComeWithTheirAllowance) {
  BulkBench b;
  put_dependencies(b.layer());
  b.layer().put("deps/left/.envrc", file("x"));
  MergeOptions options = with_ignored();
  const std::string text = describe(merge_of(b.layer(), options), false);
  EXPECT_NE(text.find("1 in it, such as deps/left/.envrc"), std::string::npos) << text;
  options.allow_risky = {"deps"};
  EXPECT_EQ(merge_of(b.layer(), options).exit_status(), 0);
  EXPECT_TRUE(b.ours().contains("deps/left/.envrc"));
}

TEST(Bulk, AFolderThatAppearsMeanwhileIsNotReplaced) {
  BulkBench b;
  put_dependencies(b.layer());
  MergeOptions options = with_ignored();
  options.before_act = [&](std::string_view act, std::string_view) -> Status {
    if (act == "create") {
      b.bench().edit("deps", directory());
      b.bench().edit("deps/mine", file("mine"));
    }
    return {};
  };
  EXPECT_EQ(merge_of(b.layer(), options).exit_status(), 125);
  EXPECT_EQ(b.ours().at("deps/mine"), file("mine"));
  EXPECT_FALSE(b.ours().contains("deps/left"));
}

TEST(Bulk, ASecretAnywhereInItNeedsAnAllowanceThatNamesTheFolder) {
  BulkBench c;
  put_dependencies(c.layer());
  // Not written as one text, so that nobody takes this file for a leak.
  const std::string token = std::string("ghp") + "_" + "0123456789abcdefghijABCDEFGHIJ012345";
  c.layer().put("deps/left/.npmrc", file("//example.org/:_authToken=" + token + "\n"));
  const Tree before = c.ours();
  auto report = merge_sandbox(c.layer().record(), with_ignored());
  ASSERT_TRUE(report.ok()) << report.error().message();
  EXPECT_EQ(report->count(Outcome::kRefused), 1U);
  EXPECT_NE(describe(*report, false).find("it holds a GitHub token (deps/left/.npmrc)"),
            std::string::npos);
  EXPECT_EQ(c.ours(), before);
  MergeOptions options = with_ignored();
  options.allow_risky = {"deps"};
  report = merge_sandbox(c.layer().record(), options);
  ASSERT_TRUE(report.ok()) << report.error().message();
  EXPECT_TRUE(report->written);
  EXPECT_TRUE(c.ours().contains("deps/left/.npmrc"));
}

// More than one piece of work, deeper than the descriptors that a process may have.
TEST(Bulk, ManyFilesAndManyLevelsComeHomeAsTheyAre) {
  BulkBench c;
  Tree made;
  made["deps"] = directory();
  std::string path = "deps";
  for (int level = 0; level < 600; ++level) made[path += "/d"] = directory(0750);
  made[path + "/deep"] = file("deep", 0700);
  for (int n = 0; n < 700; ++n) made["deps/f" + std::to_string(n)] = file(std::to_string(n));
  for (const auto& [name, node] : made) c.layer().put(name, node);
  const auto report = merge_sandbox(c.layer().record(), with_ignored());
  ASSERT_TRUE(report.ok()) << report.error().message();
  EXPECT_TRUE(report->written) << describe(*report, false);
  EXPECT_EQ(fakes::subtree(c.ours(), "deps"), made);
}

}  // namespace
}  // namespace cofferdam::orchestrator::changes
