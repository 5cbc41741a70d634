#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "egressproxy/net.h"

namespace cofferdam::egressproxy {
namespace {

class DeadlineTest : public ::testing::Test {
 protected:
  asio::io_context context_{1};
  asio::any_io_executor executor_{context_.get_executor()};
};

TEST_F(DeadlineTest, FiresOnceAndNeverEarly) {
  const auto began = Clock::now();
  int fired = 0;
  Clock::time_point at;
  Deadline deadline(executor_, milliseconds(50), [&] {
    ++fired;
    at = Clock::now();
  });
  context_.run();
  EXPECT_EQ(fired, 1);
  EXPECT_TRUE(deadline.expired());
  EXPECT_GE(at - began, milliseconds(50));
}

TEST_F(DeadlineTest, ALoopWithNothingElseToDoEndsWhenTheLastOneIsDropped) {
  bool fired = false;
  std::optional<Deadline> deadline;
  deadline.emplace(executor_, std::chrono::hours(1), [&] { fired = true; });
  asio::post(context_, [&] { deadline.reset(); });
  context_.run();
  EXPECT_FALSE(fired);
}

TEST_F(DeadlineTest, PutOffItFiresLaterAndBroughtForwardSooner) {
  const auto began = Clock::now();
  Clock::time_point later;
  Clock::time_point sooner;
  Deadline put_off(executor_, milliseconds(20), [&] { later = Clock::now(); });
  put_off.extend(milliseconds(400));
  Deadline forward(executor_, std::chrono::hours(1), [&] { sooner = Clock::now(); });
  forward.extend(milliseconds(30));
  context_.run();
  EXPECT_GE(later - began, milliseconds(400));
  EXPECT_GE(sooner - began, milliseconds(30));
  EXPECT_LT(sooner, later);
}

TEST_F(DeadlineTest, FurtherAwayThanTheWheelIsRound) {
  const auto began = Clock::now();
  std::vector<milliseconds> order;
  std::vector<std::unique_ptr<Deadline>> deadlines;
  // 8192 ms are one round.
  for (const int after : {9000, 8300, 100, 8250}) {
    deadlines.push_back(std::make_unique<Deadline>(
        executor_, milliseconds(after), [&order, after] { order.push_back(milliseconds(after)); }));
  }
  context_.run();
  EXPECT_EQ(order, (std::vector<milliseconds>{milliseconds(100), milliseconds(8250),
                                              milliseconds(8300), milliseconds(9000)}));
  EXPECT_GE(Clock::now() - began, milliseconds(9000));
}

TEST_F(DeadlineTest, OneThatFiresMayDropOthersThatAreDue) {
  int fired = 0;
  std::vector<std::unique_ptr<Deadline>> deadlines;
  for (int i = 0; i < 10; ++i) {
    deadlines.push_back(std::make_unique<Deadline>(executor_, milliseconds(20), [&] {
      ++fired;
      deadlines.clear();
    }));
  }
  context_.run();
  EXPECT_EQ(fired, 1);
}

TEST_F(DeadlineTest, AfterItHasFiredNothingSetsItAgain) {
  int fired = 0;
  Deadline deadline(executor_, milliseconds(10), [&] { ++fired; });
  context_.run();
  deadline.extend(milliseconds(10));
  context_.restart();
  context_.run();
  EXPECT_EQ(fired, 1);
}

}  // namespace
}  // namespace cofferdam::egressproxy
