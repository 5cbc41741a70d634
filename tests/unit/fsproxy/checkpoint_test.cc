// Frozen layers: what the view shows is the same before and after a checkpoint, and what is frozen
// never changes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <random>

#include "common/base/sha256.h"
#include "common/layer/freeze.h"
#include "common/layer/layer_stack.h"
#include "common/layer/squash.h"
#include "common/os/files.h"
#include "fsproxy/overlay/overlay.h"

namespace cofferdam::overlay {
namespace {

namespace fs = std::filesystem;

class Silent final : public Observer {
 public:
  void refused(std::string_view, const std::string&, const policy::FsDecision&) override {}
  void quota_exceeded(std::string_view, const std::string&) override {}
  void changed_under(const std::string&, NodeId) override {}
};

using Tree = std::map<std::string, std::string>;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() : dir_(std::move(os::TempDir::create("/var/tmp", "checkpoint-").value())) {
    ::umask(0);
    fs::create_directories(lower() / "dir/sub");
    fs::create_directories(layer());
    for (const char* name : {"file", "dir/one", "dir/sub/two", "h1"}) put(lower() / name, name);
    fs::create_hard_link(lower() / "h1", lower() / "h2");
    fs::create_hard_link(lower() / "h1", lower() / "dir/h3");
    ::usleep(20000);
    reopen();
  }

  fs::path lower() const { return dir_.path() / "lower"; }
  fs::path layer() const { return dir_.path() / "layer"; }
  static void put(const fs::path& path, std::string_view text) { std::ofstream(path) << text; }

  void reopen() {
    view_.reset();
    ledger_ = std::make_unique<Ledger>(1ULL << 34U, 1'000'000);
    Options options;
    options.lower = lower().string();
    options.layer = layer().string();
    options.writable = true;
    options.record = true;
    options.owner_uid = ::geteuid();
    options.owner_gid = ::getegid();
    auto opened = Overlay::open(std::move(options), *ledger_, silent_);
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    view_ = std::move(opened).value();
  }

  void freeze() {
    layer::Checkpoint checkpoint;
    checkpoint.id = "c" + std::to_string(++frozen_);
    ASSERT_TRUE(view_->prepare_freeze().ok());
    ASSERT_TRUE(view_->exchange_upper().ok());
    const Status done = view_->commit_freeze(checkpoint);
    ASSERT_TRUE(done.ok()) << done.error().message();
  }

  // Works on the layer while no view of it is open.
  void offline(const std::function<Status(layer::MetaStore&)>& work) {
    view_.reset();
    {
      auto meta = layer::MetaStore::open(layer() / "meta", 0);
      ASSERT_TRUE(meta.ok());
      const Status done = work(*meta);
      ASSERT_TRUE(done.ok()) << done.error().message();
    }
    reopen();
  }
  void squash() {
    offline([&](layer::MetaStore& meta) -> Status {
      TRY(layer::squash_layers(layer(), meta));
      return {};
    });
  }
  void roll_back(const std::string& checkpoint) {
    offline([&](layer::MetaStore& meta) -> Status {
      TRY_ASSIGN(layer::Freeze freeze, layer::Freeze::prepare(layer(), meta));
      TRY(freeze.exchange());
      TRY(freeze.commit_rollback(checkpoint));
      return layer::recover_layers(layer(), meta);
    });
  }
  std::vector<std::string> layers_on_disk() {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(layer() / "layers")) {
      out.push_back(entry.path().filename().string());
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  NodeId id(std::string_view path) {
    NodeId at = kRootId;
    for (std::size_t from = 0; from < path.size();) {
      const std::size_t slash = std::min(path.find('/', from), path.size());
      const auto entry = view_->lookup(at, std::string(path.substr(from, slash - from)));
      if (!entry.ok()) return 0;
      at = entry->node->id;
      from = slash + 1;
    }
    return at;
  }
  NodeId parent(std::string_view path) {
    return id(path.substr(0, path.find_last_of('/') + 1 == 0 ? 0 : path.find_last_of('/')));
  }
  static std::string leaf(std::string_view path) {
    return std::string(path.substr(path.find_last_of('/') + 1));
  }

  OpenFile* open(std::string_view path, int flags) {
    const auto opened = view_->open_file(id(path), flags);
    EXPECT_TRUE(opened.ok()) << path << ": " << opened.error().message();
    return opened.ok() ? opened->file : nullptr;
  }
  void write(OpenFile* file, std::string_view text, off_t at = 0) {
    const auto put = view_->write(*file, text, at);
    EXPECT_TRUE(put.ok()) << put.error().message();
  }
  void write(std::string_view path, std::string_view text) {
    OpenFile* file = open(path, O_WRONLY);
    write(file, text);
    view_->close(file);
  }
  void make(std::string_view path, std::string_view text) {
    const auto made = view_->create(parent(path), leaf(path), 0644, O_WRONLY);
    ASSERT_TRUE(made.ok()) << made.error().message();
    write(made->file, text);
    view_->close(made->file);
  }
  std::string content(OpenFile* file) {
    std::string text(1 << 16U, '\0');
    text.resize(view_->read(*file, text.data(), text.size(), 0).value());
    return text;
  }
  std::string content(std::string_view path) {
    OpenFile* file = open(path, O_RDONLY);
    if (file == nullptr) return "?";
    const std::string text = content(file);
    view_->close(file);
    return text;
  }
  nlink_t links(std::string_view path) { return view_->attributes(id(path))->st.st_nlink; }
  ino_t number(std::string_view path) { return view_->attributes(id(path))->st.st_ino; }

  // path -> what a program can see of it; numbers included.
  Tree tree(bool numbers = true) {
    Tree out;
    std::vector<std::pair<NodeId, std::string>> queue{{kRootId, ""}};
    while (!queue.empty()) {
      const auto [dir, path] = queue.back();
      queue.pop_back();
      const auto listed = view_->open_directory(dir);
      EXPECT_TRUE(listed.ok() && view_->list_again(**listed).ok());
      for (std::size_t i = 0; i < (*listed)->entries.size(); ++i) {
        const ListedEntry entry = (*listed)->entries[i];
        if (entry.name == "." || entry.name == "..") continue;
        const auto found = view_->lookup(dir, entry.name);
        const std::string below = path.empty() ? entry.name : path + "/" + entry.name;
        EXPECT_TRUE(found.ok()) << below << " is listed only";
        if (!found.ok()) continue;
        const struct stat& st = found->st;
        EXPECT_EQ(st.st_ino, entry.shown_inode) << below;
        std::string seen = std::to_string(st.st_mode);
        // Those of a directory are told where nothing merges: a checkpoint changes that.
        if (!S_ISDIR(st.st_mode)) seen += " links " + std::to_string(st.st_nlink);
        if (numbers) seen += " number " + std::to_string(st.st_ino);
        if (S_ISREG(st.st_mode)) seen += " " + content(below);
        out[below] = seen;
        if (found->node->is_dir()) queue.emplace_back(found->node->id, below);
      }
      view_->close(*listed);
    }
    return out;
  }
  // What lies in a frozen layer.
  Tree frozen(int layer_number) {
    Tree out;
    const fs::path root = layer() / "layers" / std::to_string(layer_number) / "upper";
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      struct stat st {};
      EXPECT_EQ(::lstat(entry.path().c_str(), &st), 0);
      std::string seen = std::to_string(st.st_ino) + " " + std::to_string(st.st_mode);
      if (S_ISREG(st.st_mode)) seen += " " + os::read_file(entry.path()).value();
      out[entry.path().lexically_relative(root).string()] = seen;
    }
    return out;
  }

  os::TempDir dir_;
  int frozen_ = 0;
  Silent silent_;
  std::unique_ptr<Ledger> ledger_;
  std::unique_ptr<Overlay> view_;
};

TEST_F(CheckpointTest, ShowsTheSameBeforeAndAfterAndAfterAStart) {
  make("dir/new", "new");
  write("file", "FILE");
  ASSERT_TRUE(view_->unlink(id("dir"), "one").ok());
  ASSERT_TRUE(view_->make_directory(kRootId, "mine", 0750).ok());
  make("mine/a", "a");
  ASSERT_TRUE(view_->link(id("mine/a"), id("dir"), "linked").ok());
  write("h1", "H1");
  const Tree before = tree();
  freeze();
  EXPECT_TRUE(fs::is_empty(layer() / "upper"));
  EXPECT_EQ(tree(), before);
  reopen();
  EXPECT_EQ(tree(), before);
  freeze();
  freeze();
  EXPECT_EQ(tree(), before);
  reopen();
  EXPECT_EQ(tree(), before);
}

TEST_F(CheckpointTest, NothingThatComesAfterItChangesAFrozenLayer) {
  make("dir/new", "new");
  ASSERT_TRUE(view_->make_directory(kRootId, "mine", 0750).ok());
  make("mine/a", "a");
  make("mine/b", "b");
  OpenFile* open_before = open("dir/new", O_RDWR);
  freeze();
  const Tree before = frozen(1);
  const ino_t number_before = number("dir/new");
  write(open_before, "NEW");
  EXPECT_EQ(content(open_before), "NEW");
  EXPECT_EQ(content("dir/new"), "NEW");
  EXPECT_EQ(number("dir/new"), number_before);
  view_->close(open_before);
  Changes chmod;
  chmod.mode = 0700;
  ASSERT_TRUE(view_->change(id("mine"), chmod, nullptr).ok());
  ASSERT_TRUE(view_->change(id("mine/a"), chmod, nullptr).ok());
  ASSERT_TRUE(view_->unlink(id("mine"), "b").ok());
  make("mine/c", "c");
  ASSERT_TRUE(view_->rename(kRootId, "mine", id("dir"), "moved", 0).ok());
  EXPECT_EQ(id("mine"), 0U);
  EXPECT_EQ(content("dir/moved/a"), "a");
  EXPECT_EQ(content("dir/moved/c"), "c");
  EXPECT_EQ(id("dir/moved/b"), 0U);
  EXPECT_EQ(frozen(1), before);
  const Tree now = tree();
  reopen();
  EXPECT_EQ(tree(), now);
  EXPECT_EQ(frozen(1), before);
}

TEST_F(CheckpointTest, NamesOfOneFrozenFileStayOneFile) {
  make("a", "a");
  ASSERT_TRUE(view_->link(id("a"), kRootId, "b").ok());
  ASSERT_TRUE(view_->link(id("a"), id("dir"), "c").ok());
  freeze();
  reopen();
  EXPECT_EQ(links("a"), 3U);
  const ino_t shown = number("a");
  write("a", "A");
  EXPECT_EQ(content("b"), "A");
  EXPECT_EQ(content("dir/c"), "A");
  for (const char* name : {"a", "b", "dir/c"}) {
    EXPECT_EQ(links(name), 3U) << name;
    EXPECT_EQ(number(name), shown) << name;
  }
  ASSERT_TRUE(view_->unlink(kRootId, "b").ok());
  EXPECT_EQ(links("a"), 2U);
  freeze();
  reopen();
  EXPECT_EQ(links("dir/c"), 2U);
  write("dir/c", "C");
  EXPECT_EQ(content("a"), "C");
  EXPECT_EQ(links("a"), 2U);
  EXPECT_EQ(number("a"), shown);
  reopen();
  EXPECT_EQ(content("a"), "C");
  EXPECT_EQ(links("a"), 2U);
}

TEST_F(CheckpointTest, ALowerNameJoinsItsCopyAlsoWhenThatIsFrozen) {
  write("h1", "ONE");
  freeze();
  const Tree before = frozen(1);
  reopen();
  EXPECT_EQ(content("h2"), "ONE");
  EXPECT_EQ(links("h2"), 3U);
  EXPECT_EQ(number("h2"), number("h1"));
  write("h2", "TWO");
  EXPECT_EQ(content("h1"), "TWO");
  EXPECT_EQ(content("dir/h3"), "TWO");
  EXPECT_EQ(links("h1"), 3U);
  EXPECT_EQ(frozen(1), before);
  freeze();
  reopen();
  write("dir/h3", "333");
  EXPECT_EQ(content("h1"), "333");
  EXPECT_EQ(content("h2"), "333");
  EXPECT_EQ(links("h2"), 3U);
}

TEST_F(CheckpointTest, ADescriptorWithoutANameWritesPastTheFrozenLayer) {
  make("a", "a");
  ASSERT_TRUE(view_->link(id("a"), kRootId, "b").ok());
  reopen();
  OpenFile* file = open("a", O_RDWR);
  // The other name is one that nobody asked for yet.
  ASSERT_TRUE(view_->unlink(kRootId, "a").ok());
  freeze();
  const Tree before = frozen(1);
  write(file, "A");
  EXPECT_EQ(frozen(1), before);
  EXPECT_EQ(content(file), "A");
  EXPECT_EQ(content("b"), "A");
  view_->close(file);
  EXPECT_EQ(content("b"), "A");

  make("c", "c");
  OpenFile* gone = open("c", O_RDWR);
  freeze();
  const Tree with_c = frozen(2);
  ASSERT_TRUE(view_->unlink(kRootId, "c").ok());
  EXPECT_EQ(view_->attributes(gone->node->id)->st.st_nlink, 0U);
  write(gone, "C");
  EXPECT_EQ(content(gone), "C");
  EXPECT_EQ(view_->attributes(gone->node->id)->st.st_nlink, 0U);
  EXPECT_EQ(frozen(2), with_c);
  view_->close(gone);
  EXPECT_EQ(id("c"), 0U);
}

TEST_F(CheckpointTest, WhatIsNotCommittedIsTakenBack) {
  make("a", "a");
  const Tree before = tree();
  ASSERT_TRUE(view_->prepare_freeze().ok());
  ASSERT_TRUE(view_->exchange_upper().ok());
  ASSERT_TRUE(view_->take_back_freeze().ok());
  EXPECT_EQ(tree(), before);
  make("b", "b");
  const Tree after = tree();
  reopen();
  EXPECT_EQ(tree(), after);
  EXPECT_TRUE(!fs::exists(layer() / "layers") || fs::is_empty(layer() / "layers"));
}

TEST_F(CheckpointTest, ALookupCostsTheSameWithManyLayers) {
  const auto cost = [&](int layers) {
    fs::remove_all(layer());
    fs::create_directories(layer());
    reopen();
    for (int i = 0; i < layers; ++i) {
      make("dir/n" + std::to_string(i), "x");
      freeze();
    }
    const NodeId dir = id("dir");
    const auto round = [&] {
      for (int i = 0; i < 2000; ++i) {
        EXPECT_TRUE(view_->lookup(dir, "n" + std::to_string(i % layers)).ok());
        EXPECT_FALSE(view_->lookup(dir, "none" + std::to_string(i)).ok());
        EXPECT_TRUE(view_->lookup(dir, "one").ok());
      }
    };
    round();
    struct rusage begin {};
    struct rusage end {};
    ::getrusage(RUSAGE_SELF, &begin);
    for (int i = 0; i < 3; ++i) round();
    ::getrusage(RUSAGE_SELF, &end);
    const auto micros = [](const struct rusage& r) {
      return (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1'000'000L + r.ru_utime.tv_usec +
             r.ru_stime.tv_usec;
    };
    return static_cast<double>(micros(end) - micros(begin));
  };
  const double few = cost(2);
  const double many = cost(64);
  // In proportion to the layers it would be 32 times as much.
  EXPECT_LT(many, few * 5) << few << " and " << many << " µs";
}

TEST_F(CheckpointTest, FoldedLayersShowTheSame) {
  write("h1", "ONE");
  ASSERT_TRUE(view_->make_directory(kRootId, "mine", 0750).ok());
  make("mine/a", "a");
  ASSERT_TRUE(view_->link(id("mine/a"), kRootId, "b").ok());
  ASSERT_TRUE(view_->unlink(id("dir"), "one").ok());
  freeze();
  ASSERT_TRUE(view_->unlink(kRootId, "b").ok());
  ASSERT_TRUE(view_->unlink(id("dir/sub"), "two").ok());
  ASSERT_TRUE(view_->remove_directory(id("dir"), "sub").ok());
  ASSERT_TRUE(view_->make_directory(id("dir"), "sub", 0700).ok());
  make("dir/sub/three", "3");
  freeze();
  write("mine/a", "A");
  write("h2", "TWO");
  freeze();
  make("last", "l");
  write("dir/h3", "333");
  const Tree before = tree();
  squash();
  EXPECT_EQ(layers_on_disk().size(), 1U);
  EXPECT_EQ(tree(), before);
  reopen();
  EXPECT_EQ(tree(), before);
  write("h1", "444");
  EXPECT_EQ(content("h2"), "444");
  EXPECT_EQ(content("dir/h3"), "444");
  freeze();
  const Tree later = tree();
  squash();
  EXPECT_EQ(tree(), later);
  EXPECT_EQ(layers_on_disk().size(), 1U);
}

// Longer than any call takes a path (PATH_MAX).
TEST_F(CheckpointTest, ATreeOfAnyDepthIsFolded) {
  const auto descend = [&](bool make) {
    NodeId at = kRootId;
    for (int level = 0; level < 30 && at != 0; ++level) {
      const std::string name = std::string(200, 'n') + std::to_string(level);
      if (make) {
        EXPECT_TRUE(view_->make_directory(at, name, 0755).ok());
      }
      const auto entry = view_->lookup(at, name);
      at = entry.ok() ? entry->node->id : 0;
    }
    return at;
  };
  ASSERT_NE(descend(true), 0U);
  freeze();
  make("one", "1");
  freeze();
  squash();
  EXPECT_EQ(layers_on_disk().size(), 1U);
  EXPECT_NE(descend(false), 0U);
}

TEST_F(CheckpointTest, ARollbackShowsWhatTheCheckpointShowed) {
  write("h1", "ONE");
  make("a", "a");
  ASSERT_TRUE(view_->link(id("a"), kRootId, "b").ok());
  freeze();
  const Tree first = tree();
  write("a", "A");
  write("h2", "TWO");
  ASSERT_TRUE(view_->unlink(kRootId, "file").ok());
  freeze();
  const Tree second = tree();
  ASSERT_TRUE(view_->rename(kRootId, "dir", kRootId, "moved", 0).ok());
  make("c", "c");
  roll_back("c2");
  EXPECT_EQ(tree(), second);
  EXPECT_EQ(layers_on_disk(), (std::vector<std::string>{"1", "2"}));
  roll_back("c1");
  EXPECT_EQ(tree(), first);
  EXPECT_EQ(layers_on_disk(), std::vector<std::string>{"1"});
  write("h2", "ZWEI");
  EXPECT_EQ(content("h1"), "ZWEI");
  write("b", "B");
  EXPECT_EQ(content("a"), "B");
  freeze();
  const Tree third = tree();
  reopen();
  EXPECT_EQ(tree(), third);
}

// Random acts, checkpoints and starts against the same acts on one layer only.
TEST_F(CheckpointTest, RandomActsShowTheSameWithCheckpointsAsWithout) {
  const auto run = [&](unsigned seed, bool with_checkpoints) {
    fs::remove_all(layer());
    fs::create_directories(layer());
    reopen();
    std::mt19937 random(seed);
    std::mt19937 other(seed + 1);
    std::map<int, Tree> kept;
    const auto pick = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
    const char* dirs[] = {"", "dir", "dir/sub", "d1", "d2", "d1/x"};
    std::string log;
    for (int step = 0; step < 300; ++step) {
      const std::string where = dirs[pick(6)];
      const std::string name = "n" + std::to_string(pick(5));
      const std::string to = dirs[pick(6)];
      const std::string to_name = "n" + std::to_string(pick(5));
      const std::string known =
          std::array{"file", "one", "two", "h1", "h2", "h3", "sub", "x"}[pick(8)];
      const std::string from = pick(2) == 0 ? name : known;
      const unsigned act = pick(11);
      const unsigned flags = pick(4) == 0 ? 2 : 0;
      if (with_checkpoints && other() % 12 == 0) {
        freeze();
        if (HasFatalFailure()) return Tree();
      }
      if (with_checkpoints && other() % 40 == 0) reopen();
      if (with_checkpoints && other() % 50 == 0) squash();
      const NodeId dir = where.empty() ? kRootId : id(where);
      const NodeId to_dir = to.empty() ? kRootId : id(to);
      const std::string path = where.empty() ? from : where + "/" + from;
      Status done;
      const auto status = [](const auto& result) {
        return result.ok() ? Status() : Status(result.error());
      };
      if (act <= 1) {
        if (dir != 0) {
          auto made = view_->create(dir, from, 0644, O_WRONLY);
          done = status(made);
          if (made.ok()) {
            (void)view_->write(*made->file, "c" + std::to_string(step), 0).ok();
            view_->close(made->file);
          }
        }
      } else if (act <= 3) {
        if (const NodeId at = id(path); at != 0) {
          auto opened = view_->open_file(at, act == 2 ? O_WRONLY : O_WRONLY | O_TRUNC);
          done = status(opened);
          if (opened.ok()) {
            (void)view_->write(*opened->file, "w" + std::to_string(step), 0).ok();
            view_->close(opened->file);
          }
        }
      } else if (act == 4) {
        if (dir != 0) done = view_->unlink(dir, from);
      } else if (act == 5) {
        if (dir != 0) done = view_->remove_directory(dir, from);
      } else if (act == 6) {
        const char* made = std::array{"d1", "d2", "x"}[pick(3)];
        if (dir != 0) done = status(view_->make_directory(dir, made, 0755));
      } else if (act <= 8) {
        if (dir != 0 && to_dir != 0) done = view_->rename(dir, from, to_dir, to_name, flags);
      } else if (act == 9) {
        const char* moved = std::array{"d1", "d2", "sub", "dir", "x"}[pick(5)];
        const char* target = std::array{"d1", "d2", "x", "n0"}[pick(4)];
        if (dir != 0 && to_dir != 0) done = view_->rename(dir, moved, to_dir, target, flags);
      } else {
        const NodeId at = id(path);
        if (at != 0 && to_dir != 0) done = status(view_->link(at, to_dir, to_name));
      }
      log += std::to_string(done.ok() ? 0 : done.error().error_number()) + " ";
    }
    Tree out = tree(false);
    out["log"] = log;
    reopen();
    Tree again = tree(false);
    again["log"] = log;
    EXPECT_EQ(again, out);
    return out;
  };
  for (unsigned seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Tree plain = run(seed, false);
    EXPECT_EQ(run(seed, true), plain);
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace cofferdam::overlay
