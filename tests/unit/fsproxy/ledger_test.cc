#include "fsproxy/overlay/ledger.h"

#include <gtest/gtest.h>

#include <limits>
#include <thread>
#include <vector>

#include "fsproxy/overlay/inode_numbers.h"

namespace cofferdam::overlay {
namespace {

TEST(Ledger, GrantsWhatFitsAndNoMore) {
  Ledger ledger(1000, 2);
  EXPECT_TRUE(ledger.reserve(1000, 1));
  EXPECT_FALSE(ledger.reserve(1, 0));
  EXPECT_TRUE(ledger.reserve(0, 1));
  EXPECT_FALSE(ledger.reserve(0, 1));
  ledger.settle(1000, 400);
  EXPECT_TRUE(ledger.reserve(600, 0));
  ledger.add(-5000, -5000);
  EXPECT_EQ(ledger.used().bytes, 0U);
  EXPECT_EQ(ledger.used().entries, 0U);
}

TEST(Ledger, HugeRequestsDoNotWrap) {
  Ledger ledger(1000, 10);
  EXPECT_TRUE(ledger.reserve(10, 1));
  EXPECT_FALSE(ledger.reserve(std::numeric_limits<std::uint64_t>::max(), 0));
  EXPECT_FALSE(ledger.reserve(std::numeric_limits<std::uint64_t>::max() - 5, 1));
  EXPECT_FALSE(ledger.reserve(0, std::numeric_limits<std::uint64_t>::max()));
  EXPECT_EQ(ledger.used().bytes, 10U);
}

TEST(Ledger, OverTheLimitStillSettlesAndRefuses) {
  Ledger ledger(1000, 10);
  ledger.add(5000, 50);  // what was there at the start
  EXPECT_FALSE(ledger.reserve(1, 0));
  EXPECT_FALSE(ledger.reserve(0, 1));
  EXPECT_TRUE(ledger.reserve(0, 0));
}

TEST(Ledger, ManyThreadsNeverExceedTheLimit) {
  Ledger ledger(10000, 1000000);
  std::vector<std::thread> threads;
  std::atomic<int> granted{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) granted += ledger.reserve(1, 0) ? 1 : 0;
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(granted, 10000);
}

TEST(InodeNumbers, UpperBornObjectsStayOutOfLowersRange) {
  InodeNumbers numbers;
  ASSERT_TRUE(numbers.load(nullptr).ok());
  EXPECT_EQ(numbers.shown(7), InodeNumbers::kUpperBorn + 7);
  // Exact as a double.
  EXPECT_EQ(static_cast<std::uint64_t>(static_cast<double>(numbers.shown(7))), numbers.shown(7));
  EXPECT_NE(numbers.shown(7), numbers.shown(InodeNumbers::kUpperBorn + 7));
  ASSERT_TRUE(numbers.remember(7, 99).ok());
  EXPECT_EQ(numbers.shown(7), 99U);
  ASSERT_TRUE(numbers.forget(7).ok());
  EXPECT_EQ(numbers.shown(7), InodeNumbers::kUpperBorn + 7);
}

}  // namespace
}  // namespace cofferdam::overlay
