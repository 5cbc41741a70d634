#include <gtest/gtest.h>

#include "orchestrator/engine/pid1_channel.h"

namespace cofferdam::orchestrator {
namespace {

TEST(WorkloadEnd, TakesTheThreeReportsOfProcessOne) {
  const struct {
    const char* text;
    WorkloadEnd::Kind kind;
    int value;
  } kCases[] = {
      {R"({"type":"exited","id":1,"status":0})", WorkloadEnd::Kind::kExited, 0},
      {R"({"type":"exited","id":1,"status":255})", WorkloadEnd::Kind::kExited, 255},
      {R"({"type":"signalled","id":1,"number":9})", WorkloadEnd::Kind::kSignalled, 9},
      {R"({"type":"not_started","id":1,"errno":2})", WorkloadEnd::Kind::kNotStarted, 2},
  };
  for (const auto& c : kCases) {
    const auto end = parse_workload_end(c.text);
    ASSERT_TRUE(end.ok()) << c.text;
    EXPECT_EQ(end->kind, c.kind) << c.text;
    EXPECT_EQ(end->value, c.value) << c.text;
    EXPECT_EQ(end->id, 1) << c.text;
  }
}

TEST(WorkloadEnd, RefusesEverythingElse) {
  const std::string kCases[] = {
      "",
      "{",
      "[]",
      "null",
      R"({"id":1,"status":0})",
      R"({"type":7,"id":1})",
      R"({"type":"ready","id":1})",
      R"({"type":"exited","id":1})",
      R"({"type":"exited","id":1,"status":256})",
      R"({"type":"exited","id":1,"status":-1})",
      R"({"type":"exited","id":1,"status":1.5})",
      R"({"type":"exited","id":1,"status":"0"})",
      R"({"type":"exited","id":-1,"status":0})",
      R"({"type":"exited","status":0})",
      R"({"type":"exited","id":18446744073709551615,"status":0})",
      R"({"type":"signalled","id":1,"number":0})",
      R"({"type":"signalled","id":1,"number":65})",
      R"({"type":"not_started","id":1,"errno":4096})",
      R"({"type":"exited","id":1,"status":0} {})",
      std::string(100000, '['),
      std::string("{\"type\":\"exited\",\"id\":1,\"status\":0,\"x\":\"\xff\"}"),
  };
  for (const std::string& text : kCases) {
    EXPECT_FALSE(parse_workload_end(text).ok()) << text.substr(0, 80);
  }
}

}  // namespace
}  // namespace cofferdam::orchestrator
