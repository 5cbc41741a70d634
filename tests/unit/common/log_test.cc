#include <fcntl.h>
#include <gtest/gtest.h>

#include <sstream>

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

TEST_F(EventLogTest, TheSizeIsBoundedAndTold) {
  EventLog log(open(), {"sb", "op", "d", "fsproxy"});
  std::filesystem::resize_file(file_, EventLog::kMaxBytes - 10);
  EXPECT_FALSE(log.write("file", {{"path", "x"}}).ok());
  EXPECT_FALSE(log.healthy());
}

}  // namespace
}  // namespace cofferdam::log
