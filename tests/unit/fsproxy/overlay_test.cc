// The overlay without FUSE: the same calls, on temporary directories.
#include "fsproxy/overlay/overlay.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <fstream>

#include "common/os/files.h"

namespace cofferdam::overlay {
namespace {

namespace fs = std::filesystem;

class Recorder final : public Observer {
 public:
  void refused(std::string_view act, const std::string& path,
               const policy::FsDecision& decision) override {
    told.push_back(std::string(act) + " " + path + " " +
                   std::string(policy::to_text(decision.reason())));
  }
  void quota_exceeded(std::string_view act, const std::string& path) override {
    told.push_back("quota " + std::string(act) + " " + path);
  }
  void changed_under(const std::string& path, NodeId) override {
    told.push_back("changed " + path);
  }
  std::vector<std::string> told;
};

class OverlayTest : public testing::Test {
 protected:
  OverlayTest() : dir_(std::move(os::TempDir::create("/var/tmp", "overlay-").value())) {
    fs::create_directories(lower() / "dir/sub");
    fs::create_directories(layer());
    put(lower() / "file", "lower");
    put(lower() / "dir/one", "1");
    put(lower() / "dir/sub/two", "2");
    put(lower() / ".env", "secret");
    const Json rules = {{{"id", "r0"}, {"action", "hide"}, {"pattern", ".env"}}};
    rules_ = policy::FsRules::parse(rules).value();
    reopen();
  }

  fs::path lower() const { return dir_.path() / "lower"; }
  fs::path layer() const { return dir_.path() / "layer"; }
  fs::path upper() const { return layer() / "upper"; }
  static void put(const fs::path& path, std::string_view text) { std::ofstream(path) << text; }
  static std::string get(const fs::path& path) { return os::read_file(path).value(); }

  void reopen() {
    view_.reset();
    ledger_ = std::make_unique<Ledger>(max_bytes_, 1000);
    Options options;
    options.lower = lower().string();
    options.layer = layer().string();
    options.writable = true;
    options.record = true;
    options.owner_uid = ::geteuid();
    options.owner_gid = ::getegid();
    options.rules = rules_;
    options.dir_capacity = 4;
    options.max_listed_bytes = max_listed_bytes_;
    auto opened = Overlay::open(std::move(options), *ledger_, observer_);
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    view_ = std::move(opened).value();
  }

  // Looks a path up and leaves no reference behind.
  int find(std::string_view path, NodeId* id = nullptr) {
    NodeId at = kRootId;
    std::size_t from = 0;
    while (from < path.size()) {
      const std::size_t slash = std::min(path.find('/', from), path.size());
      const auto entry = view_->lookup(at, std::string(path.substr(from, slash - from)));
      if (!entry.ok()) return entry.error().error_number();
      at = entry->node->id;
      from = slash + 1;
    }
    if (id != nullptr) *id = at;
    return 0;
  }
  NodeId id_of(std::string_view path) {
    NodeId id = 0;
    EXPECT_EQ(find(path, &id), 0) << path;
    return id;
  }
  static int code(const Status& status) { return status.ok() ? 0 : status.error().error_number(); }
  template <typename T>
  static int code(const Result<T>& result) {
    return result.ok() ? 0 : result.error().error_number();
  }
  void write_file(std::string_view path, std::string_view text) {
    const auto opened = view_->open_file(id_of(path), O_WRONLY | O_TRUNC);
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    ASSERT_TRUE(view_->write(*opened->file, text, 0).ok());
    view_->close(opened->file);
  }
  std::vector<std::string> list(NodeId id) {
    std::vector<std::string> names;
    const auto dir = view_->open_directory(id);
    if (!dir.ok() || !view_->list_again(**dir).ok()) return {"error"};
    for (std::size_t i = 0; i < (*dir)->entries.size(); ++i) {
      const ListedEntry e = (*dir)->entries[i];
      if (e.name != "." && e.name != "..") names.push_back(e.name);
    }
    view_->close(*dir);
    std::sort(names.begin(), names.end());
    return names;
  }

  os::TempDir dir_;
  std::uint64_t max_bytes_ = 1ULL << 30U;
  std::size_t max_listed_bytes_ = 1U << 20U;
  policy::FsRules rules_;
  Recorder observer_;
  std::unique_ptr<Ledger> ledger_;
  std::unique_ptr<Overlay> view_;
};

using Names = std::vector<std::string>;

TEST_F(OverlayTest, LooksThroughAndHides) {
  EXPECT_EQ(find("dir/sub/two"), 0);
  EXPECT_EQ(find("absent"), ENOENT);
  EXPECT_EQ(find(".env"), ENOENT);
  EXPECT_EQ(list(kRootId), (Names{"dir", "file"}));
  EXPECT_EQ(observer_.told, (Names{"lookup .env hidden"}));
  EXPECT_TRUE(fs::is_empty(upper()));
}

TEST_F(OverlayTest, RefusesNamesThatAreNone) {
  for (const char* name : {"", ".", "..", "dir/one", "../lower"}) {
    EXPECT_EQ(code(view_->lookup(kRootId, name)), EINVAL) << name;
    EXPECT_EQ(code(view_->make_directory(kRootId, name, 0755)), EINVAL) << name;
    EXPECT_EQ(code(view_->rename(kRootId, "file", kRootId, name, 0)), EINVAL) << name;
    EXPECT_EQ(code(view_->unlink(kRootId, name)), EINVAL) << name;
  }
}

TEST_F(OverlayTest, WritingCopiesUpAndLeavesLower) {
  const NodeId before = id_of("file");
  write_file("file", "changed");
  EXPECT_EQ(get(upper() / "file"), "changed");
  EXPECT_EQ(get(lower() / "file"), "lower");
  EXPECT_EQ(id_of("file"), before);
  EXPECT_TRUE(fs::is_empty(layer() / "work"));
}

TEST_F(OverlayTest, DeletedNamesAreWhiteoutsOnlyWhereLowerHasOne) {
  ASSERT_EQ(code(view_->unlink(kRootId, "file")), 0);
  struct stat st {};
  ASSERT_EQ(::lstat((upper() / "file").c_str(), &st), 0);
  EXPECT_TRUE(layer::is_whiteout(st));
  ASSERT_EQ(code(view_->make_directory(kRootId, "mine", 0755)), 0);
  ASSERT_EQ(code(view_->remove_directory(kRootId, "mine")), 0);
  EXPECT_FALSE(fs::exists(fs::symlink_status(upper() / "mine")));
  reopen();
  EXPECT_EQ(find("file"), ENOENT);
}

TEST_F(OverlayTest, WhiteoutRowsCountWhereUpperHasNothing) {
  {
    view_.reset();
    auto meta = layer::MetaStore::open(layer() / "meta", 1);
    ASSERT_TRUE(meta.ok() && meta->add_whiteout("file").ok() && meta->add_whiteout("dir").ok());
  }
  reopen();
  EXPECT_EQ(list(kRootId), Names{});
  EXPECT_EQ(find("file"), ENOENT);
  ASSERT_EQ(code(view_->make_directory(kRootId, "dir", 0755)), 0);
  EXPECT_EQ(list(id_of("dir")), Names{});
  reopen();
  EXPECT_EQ(list(id_of("dir")), Names{});
  EXPECT_EQ(find("file"), ENOENT);
}

TEST_F(OverlayTest, MovedDirectoriesAreWholeAndOpaque) {
  ASSERT_EQ(code(view_->rename(kRootId, "dir", kRootId, "moved", 0)), 0);
  EXPECT_EQ(get(upper() / "moved/sub/two"), "2");
  char value = 0;
  const char* mark = layer::own_mark_namespace() == layer::MarkNamespace::kTrusted
                         ? "trusted.overlay.opaque"
                         : "user.overlay.opaque";
  EXPECT_EQ(::getxattr((upper() / "moved").c_str(), mark, &value, 1), 1);
  EXPECT_EQ(find("dir"), ENOENT);
  reopen();
  EXPECT_EQ(list(id_of("moved")), (Names{"one", "sub"}));
}

TEST_F(OverlayTest, RefusesToMoveWhatIsHidden) {
  put(lower() / "dir/sub/.env", "secret");
  EXPECT_EQ(code(view_->rename(kRootId, "dir", kRootId, "moved", 0)), EACCES);
  EXPECT_FALSE(fs::exists(upper() / "moved"));
  EXPECT_EQ(observer_.told, (Names{"rename dir/sub/.env hidden"}));
}

TEST_F(OverlayTest, LeftoversInWorkGoAtTheNextStart) {
  view_.reset();
  fs::create_directories(layer() / "work/o1/deep");
  put(layer() / "work/o2", "half a copy");
  reopen();
  EXPECT_TRUE(fs::is_empty(layer() / "work"));
}

TEST_F(OverlayTest, QuotaRefusesAndSettles) {
  view_.reset();
  max_bytes_ = 64 * 1024;
  reopen();
  const auto created = view_->create(kRootId, "big", 0600, O_WRONLY);
  ASSERT_TRUE(created.ok());
  const std::string block(16 * 1024, 'x');
  off_t at = 0;
  int failure = 0;
  while (failure == 0 && at < (1 << 20)) {
    failure = code(view_->write(*created->file, block, at));
    at += static_cast<off_t>(block.size());
  }
  EXPECT_EQ(failure, ENOSPC);
  EXPECT_LE(ledger_->used().bytes, max_bytes_);
  EXPECT_EQ(observer_.told, (Names{"quota write big"}));
  ASSERT_EQ(code(view_->unlink(kRootId, "big")), 0);
  EXPECT_GT(ledger_->used().bytes, 32U * 1024);  // still open
  view_->close(created->file);
  EXPECT_EQ(ledger_->used().bytes, 0U);
  EXPECT_EQ(ledger_->used().entries, 0U);
}

TEST_F(OverlayTest, ManyDirectoriesNeedFewDescriptors) {
  NodeId at = kRootId;
  for (int i = 0; i < 200; ++i) {
    const auto made = view_->make_directory(at, "d", 0755);
    ASSERT_TRUE(made.ok()) << made.error().message();
    at = made->node->id;
  }
  int open = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) open += entry.exists() ? 1 : 1;
  EXPECT_LT(open, 60);
  EXPECT_EQ(code(view_->make_symlink(at, "leaf", "x")), 0);
}

TEST_F(OverlayTest, WhatWasReadBeforeIsOpenedLate) {
  const NodeId id = id_of("file");
  char text[16] = {};
  const auto content = [&](OpenFile& file) {
    const auto got = view_->read(file, text, sizeof text, 0);
    return got.ok() ? std::string(text, *got) : std::to_string(got.error().error_number());
  };
  const auto open = [&] {
    auto opened = view_->open_file(id, O_RDONLY);
    EXPECT_TRUE(opened.ok());
    return *opened;
  };
  const Overlay::Opened first = open();
  EXPECT_TRUE(first.file->fd.valid() && !first.keep_cache);
  EXPECT_EQ(content(*first.file), "lower");
  view_->close(first.file);
  EXPECT_FALSE(view_->has_late());

  const Overlay::Opened second = open();
  EXPECT_TRUE(!second.file->fd.valid() && second.keep_cache && view_->has_late());
  EXPECT_EQ(content(*second.file), "lower");
  EXPECT_FALSE(view_->has_late());
  // What has its descriptor keeps what it opened; what has none yet is no mixture of two files.
  const Overlay::Opened third = open();
  view_->open_late();
  const Overlay::Opened fourth = open();
  EXPECT_TRUE(third.file->fd.valid() && !fourth.file->fd.valid());
  put(lower() / "new", "other");
  fs::rename(lower() / "new", lower() / "file");
  EXPECT_EQ(content(*third.file), "lower");
  EXPECT_EQ(content(*fourth.file), std::to_string(ESTALE));
  view_->open_late();
  EXPECT_FALSE(view_->has_late());
  for (const auto& opened : {second, third, fourth}) view_->close(opened.file);
}

TEST_F(OverlayTest, WhatIsOpenedLateOutlivesItsName) {
  const NodeId id = id_of("file");
  view_->close(view_->open_file(id, O_RDONLY)->file);
  const auto unlinked = view_->open_file(id, O_RDONLY);
  EXPECT_TRUE(view_->has_late());
  EXPECT_EQ(code(view_->unlink(kRootId, "file")), 0);
  char text[16] = {};
  EXPECT_EQ(view_->read(*unlinked->file, text, sizeof text, 0).value(), 5U);
  view_->close(unlinked->file);

  const NodeId other = id_of("dir/one");
  view_->close(view_->open_file(other, O_RDONLY)->file);
  const auto reader = view_->open_file(other, O_RDONLY);
  EXPECT_TRUE(view_->has_late());
  write_file("dir/one", "changed");
  EXPECT_EQ(view_->read(*reader->file, text, sizeof text, 0).value(), 7U);
  view_->close(reader->file);
}

TEST_F(OverlayTest, NodesGoWhenNothingRefersToThem) {
  const std::size_t before = view_->nodes().size();
  const auto dir = view_->lookup(kRootId, "dir");
  const auto one = view_->lookup(dir->node->id, "one");
  ASSERT_TRUE(dir.ok() && one.ok());
  EXPECT_EQ(view_->nodes().size(), before + 2);
  view_->forget(dir->node->id, 1);
  EXPECT_EQ(view_->nodes().size(), before + 2);  // its child still needs it
  view_->forget(one->node->id, 1);
  EXPECT_EQ(view_->nodes().size(), before);
  view_->forget(one->node == nullptr ? 0 : 999999, 5);  // an unknown number harms nothing
}

TEST_F(OverlayTest, ListingsHaveABudget) {
  for (int i = 0; i < 200; ++i)
    put(lower() / "dir" / ("a-rather-long-name-" + std::to_string(i)), "");
  max_listed_bytes_ = 20000;
  reopen();
  const NodeId dir = id_of("dir");
  std::vector<OpenDir*> open;
  int failure = 0;
  while (failure == 0 && open.size() < 100) {
    const auto opened = view_->open_directory(dir);
    ASSERT_TRUE(opened.ok());
    failure = code(view_->list_again(**opened));
    open.push_back(*opened);
  }
  EXPECT_EQ(failure, ENOMEM);
  EXPECT_GE(open.size(), 2U);
  EXPECT_LT(open.size(), 6U);
  for (OpenDir* each : open) view_->close(each);
  EXPECT_EQ(list(dir).size(), 202U);
}

TEST_F(OverlayTest, UsageIsWhatLiesOnDisk) {
  ASSERT_EQ(code(view_->link(id_of("file"), kRootId, "again")), 0);
  for (int i = 0; i < 300; ++i) {
    const std::string name = "a-name-that-fills-the-directory-" + std::to_string(i);
    const auto made = view_->create(id_of("dir/sub"), name, 0600, O_WRONLY);
    ASSERT_TRUE(made.ok() && view_->write(*made->file, std::string(5000, 'x'), 0).ok());
    view_->close(made->file);
    if (i % 2 == 0) {
      ASSERT_EQ(code(view_->unlink(id_of("dir/sub"), name)), 0);
    }
  }
  ASSERT_EQ(code(view_->rename(kRootId, "dir", kRootId, "moved", 0)), 0);
  ASSERT_EQ(code(view_->make_symlink(kRootId, "long", std::string(200, 't'))), 0);
  ASSERT_EQ(code(view_->unlink(kRootId, "file")), 0);
  ASSERT_EQ(code(view_->unlink(id_of("moved/sub"), "two")), 0);
  const LedgerTotals before = ledger_->used();
  EXPECT_GT(before.bytes, 150U * 8192);
  reopen();
  EXPECT_EQ(ledger_->used().bytes, before.bytes);
  EXPECT_EQ(ledger_->used().entries, before.entries);
}

TEST_F(OverlayTest, ADirectoryReplacedBelowIsFollowed) {
  const auto dir = view_->lookup(kRootId, "dir");
  ASSERT_TRUE(dir.ok());
  ASSERT_TRUE(view_->make_directory(dir->node->id, "mine", 0755).ok());
  fs::remove_all(lower() / "dir");
  fs::create_directories(lower() / "dir");
  put(lower() / "dir/other", "o");
  EXPECT_EQ(list(id_of("dir")), (Names{"mine", "other"}));
}

TEST_F(OverlayTest, SymbolicLinksInLowerAreNeverFollowed) {
  fs::create_directory_symlink("/etc", lower() / "etc");
  fs::create_symlink("/etc/passwd", lower() / "passwd");
  EXPECT_EQ(code(view_->lookup(id_of("etc"), "passwd")), ENOTDIR);
  EXPECT_EQ(code(view_->open_file(id_of("passwd"), O_RDONLY)), ENXIO);
  EXPECT_EQ(view_->read_symlink(id_of("passwd")).value(), "/etc/passwd");
}

TEST_F(OverlayTest, AReplacedParentIsNoWayOut) {
  const NodeId sub = id_of("dir/sub");
  fs::remove_all(lower() / "dir");
  fs::create_directory_symlink("/etc", lower() / "dir");
  view_.reset();
  reopen();
  EXPECT_EQ(code(view_->lookup(sub, "passwd")), ESTALE);
  EXPECT_EQ(code(view_->lookup(id_of("dir"), "passwd")), ENOTDIR);
}

}  // namespace
}  // namespace cofferdam::overlay
