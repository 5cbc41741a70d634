#include "orchestrator/runner.h"

#include <gtest/gtest.h>

namespace cofferdam::orchestrator {
namespace {

Step step(std::string* trace, const std::string& name, bool fails = false) {
  return {name,
          [=]() -> Status {
            if (fails) return Error("no", ENOENT);
            *trace += "+" + name;
            return {};
          },
          [=] { *trace += "-" + name; }};
}

TEST(Runner, UndoesInReverseAndOnce) {
  std::string trace;
  {
    Runner runner;
    ASSERT_TRUE(runner.apply({step(&trace, "a"), step(&trace, "b")}).ok());
    runner.undo_all();
    EXPECT_EQ(trace, "+a+b-b-a");
  }
  EXPECT_EQ(trace, "+a+b-b-a");
}

TEST(Runner, NamesTheStepThatFailedAndUndoesTheEarlierOnes) {
  std::string trace;
  Runner runner;
  const auto done = runner.apply(
      {step(&trace, "a"), step(&trace, "b"), step(&trace, "c", true), step(&trace, "d")});
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().message(), "c: no");
  EXPECT_EQ(done.error().error_number(), ENOENT);
  EXPECT_EQ(trace, "+a+b-b-a");
}

TEST(Runner, UndoesWhenItGoesAway) {
  std::string trace;
  {
    Runner runner;
    ASSERT_TRUE(runner.apply({step(&trace, "a")}).ok());
  }
  EXPECT_EQ(trace, "+a-a");
}

}  // namespace
}  // namespace cofferdam::orchestrator
