// What the reader accepts of git objects, references, packs and deltas, and what it refuses.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "orchestrator/reader/delta.h"
#include "orchestrator/reader/object_check.h"
#include "orchestrator/reader/pack.h"
#include "orchestrator/reader/refs.h"
#include "orchestrator/reader/walk.h"

namespace cofferdam::orchestrator::reader {
namespace {

const std::string kHex(40, 'a');

std::string entry(const std::string& mode, const std::string& name, char id = 'x') {
  return mode + " " + name + std::string(1, '\0') + std::string(20, id);
}

std::string commit_text(const std::string& tree, const std::string& more = "",
                        const std::string& who = "A B <a@example.org> 1700000000 +0100") {
  return "tree " + tree + "\n" + more + "author " + who + "\ncommitter " + who + "\n\nmessage\n";
}

TEST(GitObjects, AreNamedAsGitNamesThem) {
  EXPECT_EQ(to_hex(id_of(ObjectType::kBlob, "")), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
  EXPECT_EQ(to_hex(id_of(ObjectType::kTree, "")), "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
  EXPECT_FALSE(id_from_hex(std::string(40, 'A')).has_value());
  EXPECT_FALSE(id_from_hex(std::string(39, 'a')).has_value());
}

TEST(TreeCheck, AcceptsWhatGitMakes) {
  const auto tree =
      check_tree(entry("100644", "a") + entry("100755", "a.b") + entry("40000", "a0") +
                 entry("120000", "l") + entry("160000", "sub"));
  ASSERT_TRUE(tree.ok());
  EXPECT_EQ(tree->size(), 5U);
  EXPECT_EQ((*tree)[4].kind, EntryKind::kSubmodule);
  EXPECT_TRUE(check_tree("").ok());
  // A directory sorts as if a slash followed.
  EXPECT_TRUE(check_tree(entry("100644", "a.b") + entry("40000", "a")).ok());
  EXPECT_FALSE(check_tree(entry("40000", "a") + entry("100644", "a.b")).ok());
}

TEST(TreeCheck, RefusesWhatWouldBeDangerousOrIsNotCanonical) {
  const std::map<std::string, std::string> kTrees = {
      {"empty name", entry("100644", "")},
      {"dot", entry("40000", ".")},
      {"dots", entry("40000", "..")},
      {"slash", entry("100644", "a/b")},
      {"git", entry("40000", ".git")},
      {"folded", entry("40000", ".GiT")},
      {"short name", entry("100644", "GIT~1")},
      {"trailing", entry("100644", ".git. ")},
      {"stream", entry("100644", ".git::$INDEX_ALLOCATION")},
      {"ignorable", entry("100644", ".g\u200cit")},
      {"backslash", entry("100644", "a\\.git")},
      {"long", entry("100644", std::string(256, 'n'))},
      {"modules link", entry("120000", ".gitmodules")},
      {"modules link, short", entry("120000", "GITMOD~1")},
      {"mode", entry("100777", "a")},
      {"old mode", entry("100664", "a")},
      {"padded mode", entry("0100644", "a")},
      {"directory mode", entry("040000", "a")},
      {"null id", entry("100644", "a", '\0')},
      {"order", entry("100644", "b") + entry("100644", "a")},
      {"twice", entry("100644", "a") + entry("100644", "a")},
      {"twice apart", entry("100644", "a") + entry("100644", "a.b") + entry("40000", "a")},
      {"cut", entry("100644", "a").substr(0, 20)},
      {"no name", "100644"},
      {"repository", entry("100644", "HEAD") + entry("40000", "objects") + entry("40000", "refs")},
      {"folded repository", entry("100644", "HEAD") + entry("100644", "commondir")},
  };
  for (const auto& [what, bytes] : kTrees) EXPECT_FALSE(check_tree(bytes).ok()) << what;
}

TEST(CommitCheck, ReadsParentsAndLeavesSignaturesAlone) {
  const auto links = check_commit(commit_text(
      kHex, "parent " + std::string(40, 'b') + "\nparent " + std::string(40, 'c') + "\n"));
  ASSERT_TRUE(links.ok());
  EXPECT_EQ(links->parents.size(), 2U);
  std::string sealed = commit_text(kHex);
  sealed.insert(sealed.find("\n\n") + 1,
                "gpgsig -----BEGIN\n \n abc\n -----END\nencoding latin1\n");
  EXPECT_TRUE(check_commit(sealed).ok());
  EXPECT_TRUE(check_commit(commit_text(kHex, "", " <> 0 +0000")).ok());
}

TEST(CommitCheck, RefusesWhatFsckRefuses) {
  const std::map<std::string, std::string> kCommits = {
      {"empty", ""},
      {"no tree", commit_text(kHex).substr(46)},
      {"short tree", commit_text(std::string(39, 'a'))},
      {"null tree", commit_text(std::string(40, '0'))},
      {"broken parent", commit_text(kHex, "parent xyz\n")},
      {"nul", commit_text(kHex) + std::string(1, '\0')},
      {"no mail", commit_text(kHex, "", "A B 1 +0000")},
      {"no blank", commit_text(kHex, "", "A<a@b> 1 +0000")},
      {"open mail", commit_text(kHex, "", "A <a@b 1 +0000")},
      {"nested mail", commit_text(kHex, "", "A <<a@b>> 1 +0000")},
      {"no date", commit_text(kHex, "", "A <a@b>")},
      {"padded date", commit_text(kHex, "", "A <a@b> 01 +0000")},
      {"huge date", commit_text(kHex, "", "A <a@b> 9999999999999999999 +0000")},
      {"zone", commit_text(kHex, "", "A <a@b> 1 UTC")},
      {"second author", "tree " + kHex + "\nauthor A <a@b> 1 +0000\nauthor A <a@b> 1 +0000\n\n"},
      {"late tree", commit_text(kHex).insert(commit_text(kHex).find("\n\n") + 1, "tree x\n")},
  };
  for (const auto& [what, bytes] : kCommits) EXPECT_FALSE(check_commit(bytes).ok()) << what;
}

TEST(BranchNames, AreWhatGitMakesAndNothingElse) {
  for (const char* name : {"main", "topic/one", "a.b", "ümlaut", "v1.0-rc"}) {
    EXPECT_TRUE(is_branch_name(name)) << name;
  }
  for (const char* name :
       {"",       "HEAD", "@",    "-delete", "/a",       "a/",    "a//b", "a..b", "..",
        "a/../b", ".a",   "a/.b", "a.lock",  "a.lock/b", "a.",    "a b",  "a~1",  "a^",
        "a:b",    "a?",   "a*",   "a[",      "a\\b",     "a@{1}", "a\nb", "a\x7f"}) {
    EXPECT_FALSE(is_branch_name(name)) << name;
  }
}

TEST(References, AreIdsOrBranches) {
  EXPECT_TRUE(parse_ref_file(kHex + "\n")->id.has_value());
  EXPECT_EQ(parse_ref_file("ref: refs/heads/a/b\n")->branch, "a/b");
  for (const char* text :
       {"ref: refs/heads/../x", "ref: /etc/passwd", "ref: refs/tags/x", "", "x"}) {
    EXPECT_FALSE(parse_ref_file(text).ok()) << text;
  }
  const auto packed =
      parse_packed_refs("# pack-refs with: peeled\n" + kHex + " refs/heads/a\n" + kHex +
                        " refs/tags/t\n^" + kHex + "\n" + kHex + " refs/heads/../b\n");
  ASSERT_TRUE(packed.ok());
  ASSERT_EQ(packed->branches.size(), 1U);
  EXPECT_EQ(packed->refused, std::vector<std::string>{"../b"});
  EXPECT_FALSE(parse_packed_refs("garbage\n").ok());
}

TEST(Deltas, CopyAndInsertAndNothingOutside) {
  const std::string base = "hello world";
  const auto delta = [&](const std::string& instructions, char size, char base_size = 11) {
    return std::string(1, base_size) + std::string(1, size) + instructions;
  };
  EXPECT_EQ(*apply_delta(base, delta("\x91\x06\x05\x03-hi", 8), 100), "world-hi");
  EXPECT_FALSE(apply_delta(base, delta("\x91\x06\x06", 6), 100).ok());        // past its end
  EXPECT_FALSE(apply_delta(base, delta("\x91\xff\x01", 1), 100).ok());        // begins past it
  EXPECT_FALSE(apply_delta(base, delta("\x03-hi", 4), 100).ok());             // less than it says
  EXPECT_FALSE(apply_delta(base, delta("\x03-hi", 2), 100).ok());             // more
  EXPECT_FALSE(apply_delta(base, delta("\x05-hi", 5), 100).ok());             // cut
  EXPECT_FALSE(apply_delta(base, delta(std::string(1, '\0'), 0), 100).ok());  // reserved
  EXPECT_FALSE(apply_delta(base, delta("\x03-hi", 3, 12), 100).ok());         // another base
  EXPECT_FALSE(apply_delta(base, std::string("\x0b\xff\xff\x03", 4), 100).ok());  // too large
  EXPECT_FALSE(apply_delta(base, "", 100).ok());
}

TEST(PackIndexes, OfAnyOtherFormAreRefused) {
  EXPECT_FALSE(PackIndex::parse("").ok());
  EXPECT_FALSE(PackIndex::parse(std::string(2000, '\xff')).ok());
  std::string index("\xfftOc\0\0\0\2", 8);
  index += std::string(std::size_t{256} * 4, '\0') + std::string(40, '\0');
  ASSERT_TRUE(PackIndex::parse(index).ok());
  EXPECT_FALSE(PackIndex::parse(index)->offset_of(ObjectId{}).has_value());
  std::string counts = index;
  counts[8 + 1023] = 5;  // more objects than there is room for
  EXPECT_FALSE(PackIndex::parse(counts).ok());
  counts = index;
  counts[8 + 3] = 1;  // a table that goes down again
  EXPECT_FALSE(PackIndex::parse(counts).ok());
}

// Objects of a sandbox as a map; notes what was given.
class FakeHost final : public ObjectHost {
 public:
  Result<std::vector<bool>> missing(const std::vector<ObjectId>& ids) override {
    std::vector<bool> result;
    for (const ObjectId& id : ids) result.push_back(!home.contains(id));
    return result;
  }
  Result<std::optional<LooseObject>> loose(const ObjectId& id) override {
    const auto found = objects.find(id);
    if (found == objects.end()) return std::optional<LooseObject>();
    return std::optional<LooseObject>(found->second);
  }
  Status give(ObjectType type, const ObjectId& id, std::string_view content) override {
    EXPECT_EQ(id_of(type, content), id);
    EXPECT_TRUE(given.emplace(id, type).second) << "given twice";
    return {};
  }
  ObjectId put(ObjectType type, const std::string& content) {
    const ObjectId id = id_of(type, content);
    objects[id] = {std::string(to_text(type)), content};
    return id;
  }
  ObjectId tree_of(const ObjectId& blob, const std::string& mode = "100644") {
    return put(ObjectType::kTree, mode + " f" + std::string(1, '\0') + std::string(blob.raw()));
  }
  ObjectId commit(const ObjectId& tree, const std::vector<ObjectId>& parents = {}) {
    std::string lines;
    for (const ObjectId& parent : parents) lines += "parent " + to_hex(parent) + "\n";
    return put(ObjectType::kCommit, commit_text(to_hex(tree), lines));
  }
  std::map<ObjectId, LooseObject> objects;
  std::map<ObjectId, ObjectType> home;
  std::map<ObjectId, ObjectType> given;
};

class WalkTest : public testing::Test {
 protected:
  Status walk(const ObjectId& tip, WalkLimits limits = {}) {
    return Walk(host_, packs_, limits).take(tip);
  }
  FakeHost host_;
  std::vector<Pack> packs_;
};

TEST_F(WalkTest, GivesEverythingThatHomeLacksOnce) {
  const ObjectId blob = host_.put(ObjectType::kBlob, "x");
  const ObjectId tree = host_.tree_of(blob);
  const ObjectId first = host_.commit(tree);
  const ObjectId second = host_.commit(tree, {first, first});
  ASSERT_TRUE(walk(second).ok());
  EXPECT_EQ(host_.given.size(), 4U);
  host_.given.clear();
  host_.home = {{first, ObjectType::kCommit}, {tree, ObjectType::kTree}};
  ASSERT_TRUE(walk(second).ok());
  EXPECT_EQ(host_.given.size(), 1U);
}

TEST_F(WalkTest, RefusesWhatIsMissingOrOfAnotherKindOrLies) {
  EXPECT_FALSE(walk(*id_from_hex(kHex)).ok());
  const ObjectId blob = host_.put(ObjectType::kBlob, "x");
  EXPECT_FALSE(walk(blob).ok());
  EXPECT_FALSE(walk(host_.commit(blob)).ok());
  EXPECT_FALSE(walk(host_.commit(host_.tree_of(blob, "40000"))).ok());
  const ObjectId liar = host_.put(ObjectType::kBlob, "as it says");
  host_.objects[liar].content = "something else";
  EXPECT_FALSE(walk(host_.commit(host_.tree_of(liar))).ok());
  EXPECT_FALSE(host_.given.contains(liar));
}

TEST_F(WalkTest, EndsAtItsLimits) {
  ObjectId tip = host_.commit(host_.tree_of(host_.put(ObjectType::kBlob, "x")));
  for (int i = 0; i < 50; ++i)
    tip = host_.commit(host_.tree_of(host_.put(ObjectType::kBlob, std::to_string(i))), {tip});
  WalkLimits few;
  few.objects = 20;
  EXPECT_FALSE(walk(tip, few).ok());
  host_.given.clear();
  WalkLimits small;
  small.all_bytes = 1000;
  EXPECT_FALSE(walk(tip, small).ok());
  host_.given.clear();
  EXPECT_TRUE(walk(tip).ok());
}

}  // namespace
}  // namespace cofferdam::orchestrator::reader
