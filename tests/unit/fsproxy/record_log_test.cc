// The log of bases and reads: what is cut off never was, and what is kept is what was hashed.
#include "common/layer/record_log.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/os/files.h"

namespace cofferdam::layer {
namespace {

namespace fs = std::filesystem;

BaseRecord base_of(const std::string& path, const std::string& content) {
  BaseRecord out;
  out.path = path;
  out.state = BaseState::kKnown;
  out.version = {Kind::kFile, 0644, 1, 2, content.size(), -5, 6, 7, 8};
  out.sha256 = sha256(content);
  out.stored = true;
  out.racy = true;
  return out;
}

class RecordLogTest : public testing::Test {
 protected:
  fs::path file() const { return dir_.path() / "log"; }
  std::uint64_t size() const { return fs::file_size(file()); }

  std::vector<std::string> paths(RecordLog& log, std::string_view prefix = "") {
    std::vector<std::string> out;
    EXPECT_TRUE(log.for_each_base(prefix,
                                  [&](const BaseRecord& record) -> Status {
                                    out.push_back(record.path);
                                    return {};
                                  })
                    .ok());
    return out;
  }

  os::TempDir dir_ = os::TempDir::create("/tmp", "record-log-").value();
};

TEST_F(RecordLogTest, GivesBackWhatWasAdded) {
  auto log = RecordLog::open(file());
  ASSERT_TRUE(log.ok());
  ASSERT_TRUE(log->add_base(base_of("a/b", "content"), "content").value());
  ASSERT_TRUE(log->add_read({"a/b", {Kind::kSymlink, 1, 2, 3, 4, 5, 6, 7, 8}}).ok());
  const BaseRecord found = log->base("a/b").value().value();
  EXPECT_EQ(found.version, base_of("a/b", "content").version);
  EXPECT_EQ(found.sha256, sha256("content"));
  EXPECT_TRUE(found.stored && found.racy && found.state == BaseState::kKnown);
  auto again = RecordLog::open_for_reading(file());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->content("a/b").value(), "content");
  EXPECT_EQ(again->read("a/b").value().value().version.device, 8U);
  EXPECT_FALSE(again->base("a").value().has_value());
  EXPECT_EQ(again->bases(), 1U);
  EXPECT_EQ(again->stored_bytes(), 7U);
}

TEST_F(RecordLogTest, TheFirstRecordOfAPathStays) {
  auto log = RecordLog::open(file());
  ASSERT_TRUE(log->add_base(base_of("a", "one"), "one").value());
  EXPECT_FALSE(log->add_base(base_of("a", "two"), "two").value());
  EXPECT_EQ(log->content("a").value(), "one");
}

TEST_F(RecordLogTest, WalksInTheOrderOfPathsBelowAPrefix) {
  auto log = RecordLog::open(file());
  for (const char* path : {"b", "a/y", "a0", "a", "a/x/z", "a.c"}) {
    ASSERT_TRUE(log->add_base(base_of(path, ""), "").ok());
  }
  EXPECT_EQ(paths(*log), (std::vector<std::string>{"a", "a.c", "a/x/z", "a/y", "a0", "b"}));
  EXPECT_EQ(paths(*log, "a"), (std::vector<std::string>{"a", "a/x/z", "a/y"}));
}

// A kill leaves a part of a record: wherever it was cut, all before it is there, and the log goes
// on behind it.
TEST_F(RecordLogTest, ARecordThatWasCutOffNeverWas) {
  std::uint64_t first = 0;
  {
    auto log = RecordLog::open(file());
    ASSERT_TRUE(log->add_base(base_of("one", "1"), "1").ok());
    first = size();
    ASSERT_TRUE(log->add_base(base_of("two", "content"), "content").ok());
  }
  const std::string whole = os::read_file(file()).value();
  for (std::uint64_t cut = first; cut < whole.size(); ++cut) {
    ASSERT_TRUE(os::write_file_atomic(file(), whole.substr(0, cut)).ok());
    auto reader = RecordLog::open_for_reading(file());
    ASSERT_TRUE(reader.ok());
    EXPECT_EQ(paths(*reader), std::vector<std::string>{"one"}) << cut;
    auto log = RecordLog::open(file());
    ASSERT_TRUE(log.ok());
    EXPECT_EQ(size(), first);
    ASSERT_TRUE(log->add_base(base_of("three", "3"), "3").ok());
    EXPECT_EQ(paths(*log), (std::vector<std::string>{"one", "three"}));
  }
}

TEST_F(RecordLogTest, ADamagedRecordEndsTheLog) {
  {
    auto log = RecordLog::open(file());
    ASSERT_TRUE(log->add_base(base_of("one", "1"), "1").ok());
    ASSERT_TRUE(log->add_base(base_of("two", "2"), "2").ok());
  }
  const std::string whole = os::read_file(file()).value();
  // From behind the first line; each byte of the first record but its content's.
  for (std::size_t at = 16; at < 16 + 104 + 3; ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    ASSERT_TRUE(os::write_file_atomic(file(), damaged).ok());
    auto log = RecordLog::open_for_reading(file());
    ASSERT_TRUE(log.ok());
    EXPECT_EQ(paths(*log), std::vector<std::string>()) << at;
  }
}

TEST_F(RecordLogTest, ContentThatIsNotWhatWasHashedIsNotGiven) {
  {
    auto log = RecordLog::open(file());
    ASSERT_TRUE(log->add_base(base_of("one", "content"), "content").ok());
  }
  std::string damaged = os::read_file(file()).value();
  damaged.back() = '\0';
  ASSERT_TRUE(os::write_file_atomic(file(), damaged).ok());
  auto log = RecordLog::open_for_reading(file());
  EXPECT_TRUE(log->base("one").value().has_value());
  EXPECT_FALSE(log->content("one").value().has_value());
}

TEST_F(RecordLogTest, ABatchIsWrittenAtItsEndAndKnownBefore) {
  auto log = RecordLog::open(file());
  const std::uint64_t before = size();
  log->begin_batch();
  ASSERT_TRUE(log->add_base(base_of("one", "1"), "1").value());
  EXPECT_FALSE(log->add_base(base_of("one", "x"), "x").value());
  EXPECT_EQ(log->content("one").value(), "1");
  EXPECT_EQ(size(), before);
  ASSERT_TRUE(log->end_batch().ok());
  EXPECT_GT(size(), before);
  EXPECT_EQ(log->content("one").value(), "1");
}

// The disk is full in the middle of a record: it was not recorded, and nothing of it stays.
TEST_F(RecordLogTest, ARecordThatDoesNotFitLeavesNothing) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    auto log = RecordLog::open(file());
    if (!log.ok() || !log->add_base(base_of("one", "1"), "1").ok()) ::_exit(1);
    const std::uint64_t before = size();
    const struct rlimit limit { before + 1000, before + 1000 };
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::string large(5000, 'x');
    if (log->add_base(base_of("two", large), large).ok()) ::_exit(2);
    if (size() != before || log->base("two").value()) ::_exit(3);
    if (!log->add_base(base_of("three", "3"), "3").ok()) ::_exit(4);
    ::_exit(paths(*log) == std::vector<std::string>{"one", "three"} ? 0 : 5);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << WEXITSTATUS(status);
}

TEST_F(RecordLogTest, AReaderSeesWhatAWriterAddsAndChangesNothing) {
  auto reader = RecordLog::open_for_reading(file());
  ASSERT_TRUE(reader.ok());
  EXPECT_FALSE(fs::exists(file()));
  auto log = RecordLog::open(file());
  ASSERT_TRUE(log->add_base(base_of("one", "1"), "1").ok());
  EXPECT_TRUE(reader->base("one").value().has_value());
  ASSERT_TRUE(log->add_base(base_of("two", "2"), "2").ok());
  EXPECT_EQ(paths(*reader), (std::vector<std::string>{"one", "two"}));
  EXPECT_FALSE(reader->add_base(base_of("x", ""), "").ok());
}

TEST_F(RecordLogTest, AnUnknownFormatIsRefused) {
  ASSERT_TRUE(os::write_file_atomic(file(), "cofferdam-log-9\nwhatever").ok());
  EXPECT_FALSE(RecordLog::open(file()).ok());
  EXPECT_FALSE(RecordLog::open_for_reading(file()).ok());
  EXPECT_EQ(os::read_file(file()).value(), "cofferdam-log-9\nwhatever");
}

TEST_F(RecordLogTest, ManyRecordsAreFound) {
  auto log = RecordLog::open(file());
  log->begin_batch();
  for (int i = 0; i < 20000; ++i) {
    ASSERT_TRUE(log->add_base(base_of("path/" + std::to_string(i), ""), "").value());
  }
  ASSERT_TRUE(log->end_batch().ok());
  for (int i = 0; i < 20000; i += 7) {
    EXPECT_TRUE(log->base("path/" + std::to_string(i)).value().has_value());
  }
  EXPECT_FALSE(log->base("path/20000").value().has_value());
}

}  // namespace
}  // namespace cofferdam::layer
