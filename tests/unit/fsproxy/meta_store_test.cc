#include "common/layer/meta_store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/os/files.h"

namespace cofferdam::layer {
namespace {

class MetaStoreTest : public testing::Test {
 protected:
  MetaStoreTest() : dir_(std::move(os::TempDir::create("/tmp", "meta-").value())) {}
  std::filesystem::path file() const { return dir_.path() / "meta"; }
  os::TempDir dir_;
};

BaseRecord sample(std::string path) {
  BaseRecord r;
  r.path = std::move(path);
  r.state = BaseState::kKnown;
  r.version = {Kind::kFile,           04755, 1000, 100, 1ULL << 40U, -5, 1'700'000'000'000'000'001,
               0xFFFFFFFFFFFFFFF0ULL, 66};
  r.sha256 = sha256("content");
  r.stored = true;
  r.racy = true;
  return r;
}

TEST_F(MetaStoreTest, KeepsEveryFieldOfABase) {
  auto store = MetaStore::open(file(), 42);
  ASSERT_TRUE(store.ok()) << store.error().message();
  const std::string path("d/\xff\n name", 9);
  ASSERT_TRUE(store->record_base(sample(path)).ok());
  auto got = store->base(path);
  ASSERT_TRUE(got.ok() && got->has_value());
  const BaseRecord& r = **got;
  EXPECT_EQ(r.path, path);
  EXPECT_EQ(r.state, BaseState::kKnown);
  EXPECT_EQ(r.version, sample("").version);
  EXPECT_EQ(r.sha256, sample("").sha256);
  EXPECT_TRUE(r.stored);
  EXPECT_TRUE(r.racy);
}

TEST_F(MetaStoreTest, FirstRecordOfAPathStays) {
  auto store = MetaStore::open(file(), 1);
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE(store->record_base(sample("a")).ok());
  BaseRecord later = sample("a");
  later.version.size = 7;
  later.sha256.reset();
  ASSERT_TRUE(store->record_base(later).ok());
  EXPECT_EQ((*store->base("a"))->version.size, 1ULL << 40U);
  ASSERT_TRUE(store->record_read({"a", {Kind::kFile, 1}}).ok());
  ASSERT_TRUE(store->record_read({"a", {Kind::kSymlink, 2}}).ok());
  EXPECT_EQ((*store->read("a"))->version.kind, Kind::kFile);
}

TEST_F(MetaStoreTest, StartIsThatOfTheFirstOpening) {
  { ASSERT_TRUE(MetaStore::open(file(), 1234).ok()); }
  auto again = MetaStore::open(file(), 9999);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->start_ns(), 1234);
}

TEST_F(MetaStoreTest, PrefixVisitsOnlyWhatLiesBelow) {
  auto store = MetaStore::open(file(), 1);
  ASSERT_TRUE(store.ok());
  for (const char* path : {"", "d", "d/a", "d/b/c", "d0", "d-x", "dd/a", "e"}) {
    ASSERT_TRUE(store->record_base(sample(path)).ok());
  }
  const auto visited = [&](std::string_view prefix) {
    std::vector<std::string> paths;
    EXPECT_TRUE(store
                    ->for_each_base(prefix,
                                    [&](const BaseRecord& r) -> Status {
                                      paths.push_back(r.path);
                                      return {};
                                    })
                    .ok());
    return paths;
  };
  EXPECT_EQ(visited("d"), (std::vector<std::string>{"d", "d/a", "d/b/c"}));
  EXPECT_EQ(visited("").size(), 8U);
  EXPECT_EQ(visited("absent").size(), 0U);
}

TEST_F(MetaStoreTest, WhiteoutsAndInodesCanBeTakenBack) {
  auto store = MetaStore::open(file(), 1);
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE(store->add_whiteout("b").ok());
  ASSERT_TRUE(store->add_whiteout("a").ok());
  ASSERT_TRUE(store->remove_whiteout("b").ok());
  EXPECT_EQ(store->whiteouts().value(), std::vector<std::string>{"a"});
  ASSERT_TRUE(store->set_shown_inode(1, 10).ok());
  ASSERT_TRUE(store->set_shown_inode(1, 11).ok());
  ASSERT_TRUE(store->set_shown_inode(2, 20).ok());
  ASSERT_TRUE(store->forget_shown_inode(2).ok());
  std::vector<std::pair<std::uint64_t, std::uint64_t>> seen;
  ASSERT_TRUE(store->for_each_shown_inode([&](auto u, auto s) { seen.emplace_back(u, s); }).ok());
  EXPECT_EQ(seen, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{1, 11}}));
}

TEST_F(MetaStoreTest, ReadsWhatAKilledWriterHadCommitted) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto store = MetaStore::open(file(), 7);
    if (!store.ok() || !store->record_base(sample("committed")).ok()) ::_exit(1);
    if (!store->begin().ok() || !store->record_base(sample("open")).ok()) ::_exit(1);
    (void)!::write(ready[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  ::close(ready[1]);
  char byte = 0;
  const bool told = ::read(ready[0], &byte, 1) == 1;
  ::close(ready[0]);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(told);
  auto store = MetaStore::open_for_reading(file());
  ASSERT_TRUE(store.ok()) << store.error().message();
  EXPECT_EQ(store->start_ns(), 7);
  EXPECT_TRUE(store->base("committed")->has_value());
  EXPECT_FALSE(store->base("open")->has_value());
  EXPECT_FALSE(store->record_base(sample("x")).ok());
}

TEST_F(MetaStoreTest, RefusesWhatItDoesNotKnow) {
  EXPECT_FALSE(MetaStore::open_for_reading(file()).ok());
  ASSERT_TRUE(
      os::write_file_atomic(file(), "this is no database, it is only long enough text").ok());
  EXPECT_FALSE(MetaStore::open(file(), 1).ok());
  EXPECT_FALSE(MetaStore::open_for_reading(file()).ok());
}

}  // namespace
}  // namespace cofferdam::layer
