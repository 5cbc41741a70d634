// Meter: what one connection carries, charged to its rule and to its sandbox at once.
//
// Plain integers on the loop's one thread: a charge is three subtractions and additions, so it may
// stand in every read and write. Who moves bytes asks left(), moves at most that much, and says
// what it moved; at 0 the connection is cut there, with a reset.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <utility>

#include "common/policy/budget.h"

namespace cofferdam::egressproxy {

enum class Direction : std::uint8_t { kUp, kDown };

// What a rule or the sandbox has used of its budget. Owned by Budgets; stays at its address.
struct Account {
  // More than anybody carries: what is not limited is counted all the same.
  static constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 63U;

  std::string rule;  // its id; empty: the sandbox
  policy::Budget budget;
  std::array<std::uint64_t, 2> limit = {kUnlimited, kUnlimited};  // by Direction
  std::array<std::uint64_t, 2> left = {kUnlimited, kUnlimited};
  std::uint64_t live = 0;    // connections now, also those that are being made
  std::uint64_t opened = 0;  // connections so far
  // Of the last second and the last minute; kept only where the budget asks for it.
  using Time = std::chrono::steady_clock::time_point;
  std::deque<Time> openings;
  std::deque<std::pair<Time, std::string>> names;  // each once
  std::set<std::string, std::less<>> names_seen;

  std::uint64_t used(Direction direction) const {
    const auto i = static_cast<std::size_t>(direction);
    return limit[i] - left[i];
  }
};

class Meter final {
 public:
  // Both outlive the meter.
  Meter(Account& sandbox, Account& rule) : sandbox_(&sandbox), rule_(&rule) {}

  // Bytes that may still be moved; 0: the budget is spent.
  std::uint64_t left(Direction direction) const {
    const auto i = static_cast<std::size_t>(direction);
    return std::min(sandbox_->left[i], rule_->left[i]);
  }
  // Precondition: count <= left(direction), asked for since the last wait.
  void charge(Direction direction, std::uint64_t count) {
    const auto i = static_cast<std::size_t>(direction);
    moved_[i] += count;
    sandbox_->left[i] -= count;
    rule_->left[i] -= count;
  }
  // Bytes of this connection so far.
  std::uint64_t moved(Direction direction) const {
    return moved_[static_cast<std::size_t>(direction)];
  }
  // From now on another rule is charged; what was moved stays where it was charged.
  void move_to(Account& rule) { rule_ = &rule; }
  Account& rule() const { return *rule_; }

 private:
  Account* sandbox_;
  Account* rule_;
  std::array<std::uint64_t, 2> moved_ = {0, 0};
};

}  // namespace cofferdam::egressproxy
