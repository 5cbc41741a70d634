#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>
#include <thread>

#include "common/log/event_log.h"
#include "common/os/files.h"

namespace cofferdam::log {
namespace {

std::vector<Json> lines_of(const std::filesystem::path& file) {
  std::vector<Json> lines;
  std::istringstream text(*os::read_file(file));
  for (std::string line; std::getline(text, line);) lines.push_back(*parse_json(line));
  return lines;
}

class EventLogTest : public testing::Test {
 protected:
  os::TempDir dir_ = std::move(*os::TempDir::create("/tmp", "cofferdam-test-"));
  std::filesystem::path file_ = dir_.path() / "events.jsonl";
  os::UniqueFd open() {
    return std::move(*os::open_file(file_, O_WRONLY | O_APPEND | O_CREAT, 0600));
  }
};

TEST_F(EventLogTest, EveryLineCarriesItsContext) {
  {
    EventLog log(open(), {"sb", "op", "sha256:00", "fsproxy"});
    ASSERT_TRUE(log.write("file", {{"verdict", "deny"}, {"path", "a\xff\nb"}}).ok());
  }
  const auto lines = lines_of(file_);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0]["sandbox"], "sb");
  EXPECT_EQ(lines[0]["operation"], "op");
  EXPECT_EQ(lines[0]["service"], "fsproxy");
  EXPECT_EQ(lines[0]["event"], "file");
  EXPECT_EQ(lines[0]["path"], "a\xef\xbf\xbd\nb");
  EXPECT_EQ(lines[0]["time"].get<std::string>().size(), 27U);
}

TEST_F(EventLogTest, AFloodOfEqualEventsIsFolded) {
  {
    EventLog log(open(), {"sb", "op", "d", "fsproxy"});
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(log.write("file", {{"path", ".env"}}).ok());
    ASSERT_TRUE(log.write("file", {{"path", "other"}}).ok());
  }
  const auto lines = lines_of(file_);
  ASSERT_EQ(lines.size(), 102U);
  EXPECT_EQ(lines.back()["event"], "suppressed");
  EXPECT_EQ(lines.back()["count"], 900);
}

TEST_F(EventLogTest, LinesSayWhatTreesOfValuesSay) {
  {
    EventLog log(open(), {"sb", "op", "d", "egressproxy"});
    EventLine line;
    line.add("host", "a\xff\"\n");
    line.add("port", std::uint64_t{443});
    line.add_flag("retryable", false);
    line.add_json("address", "null");
    line.add_sum("bytes_up", 7);
    line.add_measure("duration_ms", 12);
    ASSERT_TRUE(log.write_line("egress", line).ok());
    ASSERT_TRUE(log.write("egress", {{"host", "a\xff\"\n"},
                                     {"port", 443},
                                     {"retryable", false},
                                     {"address", nullptr},
                                     {"bytes_up", 7},
                                     {"duration_ms", 12}})
                    .ok());
  }
  auto lines = lines_of(file_);
  ASSERT_EQ(lines.size(), 2U);
  for (Json& line : lines) line.erase("time");
  EXPECT_EQ(lines[0], lines[1]);
}

TEST_F(EventLogTest, WhatIsFoldedKeepsItsSums) {
  {
    EventLog log(open(), {"sb", "op", "d", "egressproxy"});
    for (std::uint64_t i = 0; i < 150; ++i) {
      EventLine line;
      line.add("host", "x");
      line.add_sum("bytes_up", 3);
      line.add_measure("duration_ms", i);
      ASSERT_TRUE(log.write_line("egress", line).ok());
    }
  }
  const auto lines = lines_of(file_);
  ASSERT_EQ(lines.size(), 101U);
  EXPECT_EQ(lines.back()["of"], "egress");
  EXPECT_EQ(lines.back()["count"], 50);
  EXPECT_EQ(*parse_json(lines.back()["fields"].get<std::string>()),
            Json({{"host", "x"}, {"bytes_up", 150}}));
}

TEST_F(EventLogTest, ABatchIsWrittenWholeAndInOrder) {
  EventLog log(open(), {"sb", "op", "d", "egressproxy"});
  log.set_batching(true);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(log.write("file", {{"number", i}}).ok());
  EXPECT_TRUE(lines_of(file_).empty());
  EXPECT_TRUE(log.pending());
  ASSERT_TRUE(log.flush().ok());
  const auto lines = lines_of(file_);
  ASSERT_EQ(lines.size(), 10U);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(lines[i]["number"], i);
}

TEST_F(EventLogTest, ManyDifferentEventsForgetTheOldestAlone) {
  {
    EventLog log(open(), {"sb", "op", "d", "egressproxy"});
    log.set_batching(true);
    for (int i = 0; i < 101; ++i) ASSERT_TRUE(log.write("file", {{"path", "often"}}).ok());
    for (int i = 0; i < 5000; ++i) ASSERT_TRUE(log.write("file", {{"path", i}}).ok());
  }
  const auto lines = lines_of(file_);
  EXPECT_EQ(lines.size(), 100U + 5000U + 1U);
}

TEST_F(EventLogTest, TheSizeIsBoundedAndTold) {
  EventLog log(open(), {"sb", "op", "d", "fsproxy"});
  std::filesystem::resize_file(file_, EventLog::kMaxBytes - EventLog::kReserve - 10);
  EXPECT_FALSE(log.write("file", {{"path", "x"}}).ok());
  EXPECT_FALSE(log.healthy());
  EXPECT_FALSE(log.write("file", {{"path", "y"}}).ok());
  EXPECT_EQ(log.lost(), 2U);
  std::ifstream text(file_);
  text.seekg(static_cast<std::streamoff>(EventLog::kMaxBytes - EventLog::kReserve - 10));
  std::string tail{std::istreambuf_iterator<char>(text), {}};
  tail.erase(0, tail.find('{'));
  const Json last = *parse_json(tail);
  EXPECT_EQ(last["event"], "record_full");
  EXPECT_LE(std::filesystem::file_size(file_), EventLog::kMaxBytes);
  EXPECT_FALSE(log.try_recover());
}

// Case 152.
TEST_F(EventLogTest, AReaderThatDoesNotReadCostsEventsAndNoTime) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  os::UniqueFd reader(ends[0]);
  EventLog log(os::UniqueFd(ends[1]), {"sb", "op", "d", "egressproxy"});
  std::uint64_t good = 0;
  while (log.write("egress", {{"host", std::to_string(good)}}).ok()) ++good;
  EXPECT_FALSE(log.healthy());
  EXPECT_FALSE(log.write("egress", {{"host", "lost"}}).ok());
  EXPECT_EQ(log.lost(), 2U);
  std::string text;
  std::array<char, 65536> buffer{};
  const ssize_t count = ::read(reader.get(), buffer.data(), buffer.size());
  ASSERT_GT(count, 0);
  ASSERT_TRUE(log.write("egress", {{"host", "after"}}).ok());
  EXPECT_TRUE(log.healthy());
  EXPECT_EQ(log.written(), good + 2);
  const ssize_t rest = ::read(reader.get(), buffer.data(), buffer.size());
  std::istringstream lines(std::string(buffer.data(), static_cast<std::size_t>(rest)));
  std::vector<Json> last;
  for (std::string line; std::getline(lines, line);) {
    if (const auto json = parse_json(line)) last.push_back(*json);
  }
  ASSERT_GE(last.size(), 2U);
  EXPECT_EQ(last[last.size() - 2]["event"], "events_lost");
  EXPECT_EQ(last[last.size() - 2]["count"], 2);
  EXPECT_EQ(last.back()["host"], "after");
}

TEST_F(EventLogTest, RecoversByItselfOnceThereIsRoom) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  os::UniqueFd reader(ends[0]);
  EventLog log(os::UniqueFd(ends[1]), {"sb", "op", "d", "egressproxy"});
  for (int i = 0; log.write("egress", {{"n", i}}).ok();) ++i;
  std::array<char, 65536> buffer{};
  EXPECT_FALSE(log.try_recover());
  ASSERT_GT(::read(reader.get(), buffer.data(), buffer.size()), 0);
  EXPECT_FALSE(log.try_recover()) << "not asked more than once a second";
  std::this_thread::sleep_for(EventLog::kRetry + std::chrono::milliseconds(50));
  EXPECT_TRUE(log.try_recover());
  EXPECT_TRUE(log.healthy());
}

}  // namespace
}  // namespace cofferdam::log
