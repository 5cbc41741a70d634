// A reader that was taken over: it costs bounded time and memory, and what it says is not believed.
#include "orchestrator/changes/reader_session.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "common/os/files.h"
#include "orchestrator/changes/completeness.h"
#include "orchestrator/changes/tree_difference.h"
#include "tests/fakes/tree.h"

namespace cofferdam::orchestrator::changes {
namespace {

namespace fs = std::filesystem;
using reader::ObjectId;
using reader::ObjectType;

class ReaderSession : public testing::Test {
 protected:
  ReaderSession()
      : root_(std::move(*os::TempDir::create(fakes::scratch_directory(), "cofferdam-reader-"))) {
    record_.workspace = (root_.path() / "workspace").string();
    record_.directory = root_.path() / "sandbox";
    for (const fs::path& git :
         {fs::path(record_.workspace) / ".git", record_.directory / "upper/.git"}) {
      fs::create_directories(git / "refs/heads");
      fs::create_directories(git / "objects/pack");
      write(git / "HEAD", "ref: refs/heads/main\n");
      write(git / "config", "[core]\n\trepositoryformatversion = 0\n\tbare = false\n");
    }
  }

  static void write(const fs::path& file, const std::string& text, unsigned mode = 0644) {
    EXPECT_TRUE(os::write_file_atomic(file, text, mode).ok());
  }

  // The error of a session with a reader that does `body` with the socket `s`, for 60 s at most.
  std::string told(const std::string& body, ReaderPatience patience = {}) {
    const fs::path program = root_.path() / "reader";
    write(program,
          "#!/usr/bin/python3\nimport signal, socket, time\nsignal.alarm(60)\n"
          "s = socket.socket(fileno=3)\n" +
              body,
          0755);
    std::string why;
    auto home = HomeRepository::open(record_.workspace, why);
    if (!home.ok() || !home->has_value()) return "no home: " + why;
    auto layer = GitLayer::open(record_, **home);
    if (!layer.ok() || !layer->has_value()) return "no layer";
    const auto read = read_commits(
        program, **layer, **home,
        [](ObjectType, const ObjectId&, std::string_view) { return Status(); }, patience);
    return read.ok() ? std::string() : read.error().message();
  }

  os::TempDir root_;
  SandboxRecord record_;
};

const std::string kListen = "while s.recv(1 << 20) != b'G': pass\n";

TEST_F(ReaderSession, OfOneThatAlwaysHasAQuestionEnds) {
  const std::string error =
      told(kListen + "while True:\n  s.send(b'q' + bytes(20 * 1024))\n  s.recv(1 << 20)\n",
           {std::chrono::seconds(30), std::chrono::seconds(2)});
  EXPECT_NE(error.find("takes too long"), std::string::npos) << error;
}

TEST_F(ReaderSession, OfOneThatTakesNothingEnds) {
  for (int i = 0; i < 2000; ++i) {
    write(record_.directory / "upper/.git/refs/heads" / std::to_string(i), std::string(40, 'a'));
  }
  const std::string error =
      told("time.sleep(60)\n", {std::chrono::seconds(2), std::chrono::minutes(10)});
  EXPECT_NE(error.find("takes too long"), std::string::npos) << error;
}

TEST_F(ReaderSession, OfOneThatMakesUpBranchesWithoutEndEnds) {
  for (const std::string packet : {"b'b' + b'x' * 20 + b'n%d' % i", "b'x' + b'n%d' % i + b'\\0why'",
                                   "b'x' + b'n' * 5000 + b'\\0why'"}) {
    const std::string error =
        told(kListen + "for i in range(30000): s.send(" + packet + ")\ns.send(b'e')\n");
    EXPECT_NE(error.find("impossible"), std::string::npos) << packet << ": " << error;
  }
}

TEST_F(ReaderSession, TakesNoNameThatLeadsOutOfItsReferences) {
  for (const char* name : {"../heads/main", "a/../../b", "/etc", "a//b", "x.lock", "a.lock/b", ".x",
                           "a/.b", "HEAD/", "a\\0b", "a\\nb", "@", "-d"}) {
    const std::string error =
        told(kListen + "s.send(b'b' + b'x' * 20 + b'" + name + "')\ns.send(b'e')\n");
    EXPECT_NE(error.find("impossible"), std::string::npos) << name << ": " << error;
  }
}

// Objects that were received, put together by hand.
struct Objects {
  ObjectId put(ObjectType type, const std::string& content) {
    const ObjectId id = reader::id_of(type, content);
    received.objects[id] = {type, content, true};
    return id;
  }
  ObjectId commit(const ObjectId& tree, const std::string& message = "m") {
    const std::string who = "n <e@example.org> 1 +0000\n";
    return put(ObjectType::kCommit, "tree " + reader::to_hex(tree) + "\nauthor " + who +
                                        "committer " + who + "\n" + message + "\n");
  }
  Received received;
};

std::string entry(const std::string& mode, const std::string& name, const ObjectId& id) {
  return mode + " " + name + std::string(1, '\0') + std::string(id.raw());
}

ObjectId id_of_number(unsigned number) {
  return reader::id_of(ObjectType::kBlob, std::to_string(number));
}

TEST(Completeness, IsFoundOnceHoweverManyBranchesLeadToTheSame) {
  Objects objects;
  std::string many;
  for (unsigned i = 1000; i < 2000; ++i) {
    many += entry("100644", "f" + std::to_string(i), id_of_number(i));
  }
  const ObjectId tree = objects.put(ObjectType::kTree, many);
  const std::set<ObjectId> none;
  for (const unsigned missing : {0U, 1000U, 1999U}) {
    std::size_t asked = 0;
    Completeness whole(
        objects.received,
        [&](const ObjectId& id) {
          ++asked;
          return id != id_of_number(missing);
        },
        none);
    for (int branch = 0; branch < 100; ++branch) {
      const ObjectId tip = objects.commit(tree, std::to_string(branch));
      EXPECT_EQ(whole.check(tip).ok(), missing == 0) << branch;
    }
    EXPECT_LE(asked, 1000U);
  }
}

TEST(Completeness, OfOneBranchSaysNothingOfAnother) {
  Objects objects;
  const ObjectId blob = objects.put(ObjectType::kBlob, "x");
  const ObjectId good = objects.put(ObjectType::kTree, entry("100644", "f", blob));
  const ObjectId bad = objects.put(
      ObjectType::kTree, entry("40000", "a", good) + entry("160000", "s", id_of_number(1)));
  const ObjectId wrong = objects.put(ObjectType::kTree, entry("40000", "f", blob));
  const std::set<ObjectId> none;
  Completeness whole(
      objects.received, [](const ObjectId&) { return false; }, none);
  const ObjectId first = objects.commit(bad);
  EXPECT_FALSE(whole.check(first).ok());
  EXPECT_FALSE(whole.check(first).ok()) << "asked again";
  EXPECT_TRUE(whole.check(objects.commit(good)).ok());
  EXPECT_FALSE(whole.check(objects.commit(wrong)).ok());
  EXPECT_FALSE(whole.check(good).ok()) << "a tree is no commit";
  const auto home = reachable(objects.received, {objects.commit(good)});
  EXPECT_EQ(home.size(), 3U);
  EXPECT_FALSE(home.contains(bad));
}

TEST(Completeness, RefusesWhatGitCouldNotBear) {
  Objects objects;
  const std::set<ObjectId> none;
  Completeness whole(
      objects.received, [](const ObjectId&) { return false; }, none);
  ObjectId below = objects.put(ObjectType::kTree, "");
  for (int depth = 1; depth <= 1100; ++depth) {
    below = objects.put(ObjectType::kTree, entry("40000", "d", below));
    EXPECT_EQ(whole.check(objects.commit(below)).ok(), depth <= 1024) << depth;
  }
  below = objects.put(ObjectType::kTree, "");
  for (int level = 1; level <= 10; ++level) {
    std::string content;
    for (char name = 'a'; name <= 'j'; ++name) {
      content += entry("40000", std::string(1, name), below);
    }
    below = objects.put(ObjectType::kTree, content);
    EXPECT_EQ(whole.check(objects.commit(below)).ok(), level <= 7) << level;
  }
}

// Ten directories in each of ten levels, and nothing at the bottom: 10^10 places.
TEST(TreeDifferences, EndWhereTreesStandInTooManyPlaces) {
  Objects objects;
  ObjectId below = objects.put(ObjectType::kTree, "");
  for (int level = 0; level < 10; ++level) {
    std::string content;
    for (char name = 'a'; name <= 'j'; ++name) {
      content += entry("40000", std::string(1, name), below);
    }
    below = objects.put(ObjectType::kTree, content);
  }
  const auto found = compare_trees(
      std::nullopt, below, [&](const ObjectId& id) { return *objects.received.content(id); });
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().message(), "more changes than can be reviewed");
}

}  // namespace
}  // namespace cofferdam::orchestrator::changes
