#include "orchestrator/changes/patch.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <map>
#include <sstream>

#include "common/os/process.h"
#include "orchestrator/changes/blob_id.h"
#include "orchestrator/changes/diff.h"
#include "orchestrator/changes/export.h"
#include "orchestrator/changes/renames.h"
#include "tests/unit/changes/random_tree.h"
#include "tests/unit/changes/workbench.h"

namespace cofferdam::orchestrator::changes {
namespace {

using fakes::Dice;
using fakes::directory;
using fakes::file;
using fakes::LayerBuilder;
using fakes::link;
using fakes::Tree;

ContentSource source_of(std::string text) {
  return [text = std::move(text)](const Sink& sink) { return sink(text); };
}

struct Exported {
  std::string patch;
  ExportReport report;
};

Exported export_of(const LayerBuilder& layer) {
  Exported result;
  auto report = export_patch(layer.record(), [&](std::string_view bytes) -> Status {
    result.patch += bytes;
    return {};
  });
  EXPECT_TRUE(report.ok()) << (report.ok() ? "" : report.error().message());
  if (report.ok()) result.report = std::move(*report);
  return result;
}

// Stock git on a clean copy of the base: what the user would run.
Tree applied(const Tree& base, const std::string& patch, std::string* error) {
  const auto dir = std::move(*os::TempDir::create("/tmp", "cofferdam-apply-"));
  std::filesystem::create_directory(dir.path() / "tree");
  fakes::write_tree(dir.path() / "tree", base);
  fakes::write_node(dir.path(), "patch", file(patch));
  os::SpawnOptions options;
  options.argv = {"/usr/bin/git", "apply", "--binary", "--whitespace=nowarn", "../patch"};
  options.directory = (dir.path() / "tree").string();
  options.env = {{"PATH=/usr/bin:/bin", "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1",
                  "GIT_CEILING_DIRECTORIES=/tmp"}};
  const auto done = os::run_command(options, std::chrono::seconds(60));
  *error = done.ok() ? done->err : done.error().message();
  if (done.ok() && done->status.code == 0) error->clear();
  return fakes::read_tree(dir.path() / "tree");
}

// As git sees it: no directories, two modes.
Tree git_view(const Tree& tree) {
  Tree view;
  for (auto [path, node] : tree) {
    if (node.kind == fakes::NodeKind::kDirectory) continue;
    if (node.kind == fakes::NodeKind::kFile) node.mode = (node.mode & 0100U) != 0 ? 0755 : 0644;
    view[path] = node;
  }
  return view;
}

TEST(Patch, BlobIdsAreGits) {
  EXPECT_EQ(*blob_id(0, source_of("")), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
  EXPECT_EQ(*blob_id(12, source_of("hello world\n")), "3b18e512dba79e4c8300dd08aeb37f8e728b8dad");
  EXPECT_FALSE(blob_id(3, source_of("longer")).ok());
}

TEST(Patch, NamesAreQuotedAsGitReadsThem) {
  const struct {
    std::string_view name;
    std::string_view quoted;
  } cases[] = {
      {"a/plain-name_1.txt", "a/plain-name_1.txt"},
      {"a b", "\"a b\""},
      {"tab\there", "\"tab\\there\""},
      {"q\"b\\s", "\"q\\\"b\\\\s\""},
      {"\xff\n", "\"\\377\\n\""},
      {"\x01", "\"\\001\""},
      {"caf\xc3\xa9", "\"caf\\303\\251\""},
  };
  for (const auto& c : cases) EXPECT_EQ(quote_name(c.name), c.quoted);
}

TEST(Patch, OneOfEverythingPassesThroughStockGit) {
  const Tree base = {
      {"text", file("1\n2\n3\n4\n5\n6\n7\n8\n9\n")},
      {"crlf", file("a\r\nb\r\nc\r\n")},
      {"nonl", file("no newline")},
      {"bin", file(std::string("\0\1\2", 3) + std::string(5000, 'x'))},
      {"latin", file("caf\xe9\n")},
      {"gone", file("bye\n")},
      {"gone-empty", file("")},
      {"script", file("#!/bin/sh\n")},
      {"link", link("text")},
      {"to-link", file("text\n")},
      {"to-dir", file("text\n")},
      {"d", directory()},
      {"d/f", file("f\n")},
  };
  const Workbench bench(base);
  LayerBuilder layer(bench.workspace());
  layer.put("text", file("1\n2\nthree\n4\n5\n6\n7\n8\n9\n10\n"));
  layer.put("crlf", file("a\r\nB\r\nc\r\n"));
  layer.put("nonl", file("still none"));
  layer.put("late-nul", file(std::string(9000, 'x') + "\n" + std::string("\0y\n\0", 4)));
  layer.put("bare-cr", file("a\rb\r\n\r"));
  layer.put("bin", file(std::string("\0\1\3", 3) + std::string(70000, 'y')));
  layer.put("latin", file("na\xefve\n"));
  layer.remove("gone");
  layer.remove("gone-empty");
  layer.chmod("script", 0755);
  layer.put("link", link("d/f"));
  layer.remove("to-link");
  layer.put("to-link", link("elsewhere"));
  layer.remove("to-dir");
  layer.put("to-dir", directory());
  layer.put("to-dir/in", file("in\n"));
  layer.remove("d");
  layer.put("d", file("a file\n"));
  layer.put("new-empty", file(""));
  layer.put("new bin", file(std::string(1, '\0'), 0755));
  layer.put("odd \"name\"\t\xff\n\\", file("odd\n"));
  layer.put("-dash", file("x\n"));
  layer.put("b", directory());
  layer.put("b/ trailing ", file("x"));
  const Exported exported = export_of(layer);
  std::string error;
  const Tree result = applied(base, exported.patch, &error);
  ASSERT_EQ(error, "") << exported.patch;
  EXPECT_EQ(git_view(result), git_view(layer.theirs()))
      << fakes::difference(git_view(result), git_view(layer.theirs()));
  EXPECT_TRUE(exported.report.not_in_patch.empty());
}

TEST(Patch, RandomTreesPassThroughStockGitByteForByte) {
  const std::vector<std::string> names = {"a",    "b c", "\"q\"", "\xff\xfe", "t\tab",
                                          "n\nl", "-x",  "\\",    "\xc3\xa9", " "};
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Dice dice(seed);
    const Tree base = fakes::without_empty_directories(fakes::random_tree(dice, names, {0755}));
    const Workbench bench(base);
    LayerBuilder layer(bench.workspace());
    for (unsigned i = 1 + dice.below(12); i > 0; --i) random_act(dice, layer, names, {0755});
    const Exported exported = export_of(layer);
    if (exported.patch.empty()) continue;
    std::string error;
    const Tree result = applied(base, exported.patch, &error);
    ASSERT_EQ(error, "") << exported.patch;
    ASSERT_EQ(git_view(result), git_view(layer.theirs()))
        << fakes::difference(git_view(result), git_view(layer.theirs())) << exported.patch;
  }
}

TEST(Patch, OneLinkThatGitRefusesDoesNotSpoilThePatch) {
  const Tree base = {{"text", file("1\n")}};
  for (const char* name : {".gitmodules", ".GitModules", "GITMOD~1", "gi7eb~11", "x\\.gitmodules",
                           "sub/.gitmodules"}) {
    const Workbench bench(base);
    LayerBuilder layer(bench.workspace());
    if (std::string_view(name).starts_with("sub/")) layer.put("sub", fakes::directory());
    layer.put(name, link("text"));
    layer.put("text", file("2\n"));
    const Exported exported = export_of(layer);
    std::string error;
    const Tree result = applied(base, exported.patch, &error);
    EXPECT_EQ(error, "") << name;
    EXPECT_EQ(result.at("text").content, "2\n") << name;
    ASSERT_GE(exported.report.not_in_patch.size(), 1U) << name;
    EXPECT_EQ(exported.report.not_in_patch.back().path, name);
  }
}

TEST(Patch, WhatAPatchCannotHoldIsNamedInTheManifest) {
  const Workbench bench({{"secret", file("x\n")}});
  LayerBuilder layer(bench.workspace());
  layer.chmod("secret", 0600);
  layer.put("empty-dir", directory());
  layer.put("private", file("p\n", 0640));
  layer.put("pipe", {fakes::NodeKind::kFifo, 0644, {}});
  const Exported exported = export_of(layer);
  ASSERT_EQ(exported.report.not_in_patch.size(), 3U);
  EXPECT_EQ(exported.report.manifest["changes"].size(), 3U);
  EXPECT_EQ(exported.report.manifest["changes"][0]["in_patch"], "none");
  EXPECT_EQ(exported.report.manifest["changes"][1]["in_patch"], "partly");
  EXPECT_EQ(exported.report.manifest["changes"][2]["in_patch"], "none");
  EXPECT_EQ(exported.report.manifest["omitted"][0]["path"], "pipe");
  EXPECT_EQ(exported.report.manifest["patch"]["sha256"], to_hex(sha256(exported.patch)));
}

TEST(Patch, ALargeBaseThatWasNotKeptIsTakenFromTheWorkspaceOrLeftOutLoudly) {
  const std::string large(5U << 20U, 'L');
  const Workbench bench({{"large", file(large)}});
  LayerBuilder layer(bench.workspace());
  layer.put("large", file("small\n"));
  EXPECT_NE(export_of(layer).patch.find("diff --git a/large"), std::string::npos);
  bench.edit("large", file("the user's\n"));
  const Exported exported = export_of(layer);
  EXPECT_EQ(exported.patch, "");
  ASSERT_EQ(exported.report.not_in_patch.size(), 1U);
  EXPECT_EQ(exported.report.not_in_patch[0].path, "large");
}

TEST(Patch, LargeFilesAreStreamedAsBinaryAndComeBack) {
  std::string large;
  for (int i = 0; large.size() < (9U << 20U); ++i) large += "line " + std::to_string(i) + "\n";
  const Workbench bench({});
  LayerBuilder layer(bench.workspace());
  layer.put("large", file(large));
  std::string error;
  const Tree result = applied({}, export_of(layer).patch, &error);
  ASSERT_EQ(error, "");
  EXPECT_TRUE(result.at("large").content == large);
}

std::string diff_of(const LayerBuilder& layer, DiffForm form,
                    const std::vector<std::string>& paths = {}) {
  std::string text;
  const Status done =
      write_diff(layer.record(), form, paths, false, [&](std::string_view bytes) -> Status {
        text += bytes;
        return {};
      });
  EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message());
  return text;
}

TEST(Diff, IsSafeForATerminalAndPutsRiskFirst) {
  const Workbench bench({{"a", file("old\n")}});
  LayerBuilder layer(bench.workspace());
  layer.put("a", file("new \x1b]0;owned\x07\r\n"));
  layer.put("z.pth", file("import os\n"));
  layer.put("e\x1b", file("x\n"));
  const std::string text = diff_of(layer, DiffForm::kPatch);
  for (const char c : text) {
    EXPECT_TRUE(c == '\n' || c == '\t' || (c >= 0x20 && c < 0x7F)) << static_cast<int>(c);
  }
  EXPECT_TRUE(text.starts_with("! z.pth: "));
  EXPECT_LT(text.find("b/z.pth"), text.find("b/a"));
  EXPECT_NE(text.find("+new \\x1b]0;owned\\x07\\x0d\n"), std::string::npos);
}

TEST(Diff, JsonIsSafeForATerminalToo) {
  const Workbench bench({{"a", file("old\n")}});
  LayerBuilder layer(bench.workspace());
  layer.put(
      "csi\xc2\x9b"
      "31m",
      file("x\n"));
  layer.put(
      "turned\xe2\x80\xae"
      "gpj.exe",
      file("x\n"));
  layer.put("del\x7f", file("x\n"));
  const std::string text = diff_of(layer, DiffForm::kJson);
  for (const char c : text) {
    EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7F)) << static_cast<int>(c);
  }
  const auto json = parse_json(text);
  ASSERT_TRUE(json.ok());
  EXPECT_EQ((*json)["changes"][0]["path"],
            "csi\xc2\x9b"
            "31m");
}

TEST(Diff, NameStatusStatAndJsonSayTheSame) {
  const Workbench bench({{"a", file("1\n2\n")}, {"gone", file("x\n")}});
  LayerBuilder layer(bench.workspace());
  layer.put("a", file("1\n3\n4\n"));
  layer.remove("gone");
  layer.put("dir", directory());
  layer.put("dir/new", file("n\n"));
  EXPECT_EQ(diff_of(layer, DiffForm::kNameStatus), "M\ta\nA\tdir\nA\tdir/new\nD\tgone\n");
  EXPECT_NE(diff_of(layer, DiffForm::kStat).find(" a | +2 -1\n"), std::string::npos);
  const auto json = parse_json(diff_of(layer, DiffForm::kJson));
  ASSERT_TRUE(json.ok());
  EXPECT_EQ((*json)["changes"].size(), 4U);
  EXPECT_EQ((*json)["changes"][0]["change"], "modified");
  EXPECT_EQ(diff_of(layer, DiffForm::kNameStatus, {"dir"}), "A\tdir\nA\tdir/new\n");
}

std::string numbered_lines(int from, int to) {
  std::string text;
  for (int i = from; i < to; ++i) text += "line number " + std::to_string(i) + "\n";
  return text;
}

TEST(Renames, AreFoundBySimilarityAndApplyWithStockGit) {
  const Tree base = {{"old name", file(numbered_lines(0, 50))},
                     {"same.bin", file(std::string("\0\1\2\3", 4) + numbered_lines(0, 90), 0755)},
                     {"unlike", file("nothing of it is left\n")},
                     {"l", fakes::link("same.bin")},
                     {"stays", file("stays\n")}};
  const Workbench bench(base);
  LayerBuilder layer(bench.workspace());
  layer.remove("old name");
  layer.put("d", fakes::directory());
  layer.put("d/new\tname", file(numbered_lines(0, 45) + "another line\n", 0755));
  layer.rename("same.bin", "d/same.bin");
  layer.rename("l", "link");
  layer.remove("unlike");
  layer.put("quite", file("something else altogether, longer\n"));
  EXPECT_EQ(diff_of(layer, DiffForm::kNameStatus),
            "R089\told name\td/new\\tname\nR100\tsame.bin\td/same.bin\nR100\tl\tlink\nA\td\n"
            "A\tquite\nD\tunlike\n");
  const Exported exported = export_of(layer);
  EXPECT_NE(
      exported.patch.find("similarity index 100%\nrename from same.bin\nrename to d/same.bin"),
      std::string::npos);
  EXPECT_NE(exported.patch.find("old mode 100644\nnew mode 100755\nsimilarity index 89%\n"
                                "rename from \"old name\"\nrename to \"d/new\\tname\"\nindex "),
            std::string::npos);
  std::string error;
  const Tree result = applied(base, exported.patch, &error);
  ASSERT_EQ(error, "");
  EXPECT_EQ(git_view(result), git_view(layer.theirs()))
      << fakes::difference(git_view(result), git_view(layer.theirs()));
  // Every path has its row, with what it was and what it is.
  std::map<std::string, std::string> rows;
  for (const Json& row : exported.report.manifest["changes"]) {
    rows[row["path"].get<std::string>()] = row["change"].get<std::string>();
    EXPECT_EQ(row["in_patch"] == "none", false) << row;
  }
  EXPECT_EQ(rows["d/same.bin"], "renamed");
  EXPECT_EQ(rows["same.bin"], "deleted");
  EXPECT_EQ(rows.size(), 9U);
}

TEST(Renames, ALinkWhoseNameGitRefusesIsNoHalfOfOne) {
  const Tree base = {{".gitmodules", link("somewhere")}, {"a", file("a\n")}};
  const Workbench bench(base);
  LayerBuilder layer(bench.workspace());
  layer.rename(".gitmodules", "plain");
  layer.put("a", file("b\n"));
  const Exported exported = export_of(layer);
  std::string error;
  Tree expected = layer.theirs();
  expected[".gitmodules"] = base.at(".gitmodules");
  EXPECT_EQ(applied(base, exported.patch, &error), expected);
  EXPECT_EQ(error, "");
  ASSERT_EQ(exported.report.not_in_patch.size(), 1U);
  EXPECT_EQ(exported.report.not_in_patch[0].path, ".gitmodules");
}

TEST(Renames, SimilarityIsHundredOnlyForEqualContent) {
  EXPECT_EQ(similarity("a\nb\n", "a\nb\n"), 100U);
  EXPECT_EQ(similarity("a\nb\n", "b\na\n"), 99U);
  EXPECT_EQ(similarity("", ""), 0U);
  EXPECT_EQ(similarity("aaaa\n", "bbbb\n"), 0U);
  EXPECT_EQ(similarity("aaaa\nbbbb\n", "aaaa\ncccc\n"), 50U);
}

TEST(Diff, ColoursOnlyWhatIsItsOwn) {
  const Workbench bench({{"a", file("one\n")}});
  LayerBuilder layer(bench.workspace());
  layer.put("a", file("two\x1b[31m\n"));
  std::string text;
  ASSERT_TRUE(
      write_diff(layer.record(), DiffForm::kPatch, {}, true, [&](std::string_view bytes) -> Status {
        text += bytes;
        return {};
      }).ok());
  EXPECT_NE(text.find("\x1b[31m-one\x1b[m\n"), std::string::npos);
  EXPECT_NE(text.find("\x1b[32m+two\\x1b[31m\x1b[m\n"), std::string::npos);
}

}  // namespace
}  // namespace cofferdam::orchestrator::changes
