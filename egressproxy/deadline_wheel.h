// The deadlines of one event loop: a wheel of slots and one timer, so that a deadline that is set,
// put off and dropped again costs a few pointers. Deadlines fire up to one slot late, never early.
#pragma once

#include <array>
#include <boost/asio/execution_context.hpp>
#include <cstdint>
#include <optional>

#include "egressproxy/net.h"

namespace cofferdam::egressproxy {

// One per io_context (asio::use_service).
class DeadlineWheel final : public asio::execution_context::service {
 public:
  using key_type = DeadlineWheel;
  // Asio looks for it. NOLINTNEXTLINE(readability-identifier-naming)
  static const asio::execution_context::id id;
  static constexpr milliseconds kSlot{16};

  explicit DeadlineWheel(asio::execution_context& context);

  // In one list of the wheel until remove() or until it is due.
  void add(Deadline& deadline);
  void remove(Deadline& deadline);

 private:
  static constexpr std::size_t kSlots = 512;
  using Turn = std::int64_t;  // slots since the clock's epoch

  static Turn turn_of(Clock::time_point time);
  Deadline*& slot_of(Turn turn);
  static void link(Deadline*& list, Deadline& deadline);
  static void unlink(Deadline& deadline);
  void shutdown() override;
  // Sees to it that the timer fires no later than at `turn`.
  void arm(Turn turn);
  void arm_next();
  void advance();

  std::array<Deadline*, kSlots> slots_{};  // by turn; some are of a later round
  std::size_t size_ = 0;
  Turn seen_ = 0;  // every turn up to here was looked at
  std::optional<Turn> armed_;
  std::optional<asio::steady_timer> timer_;
};

}  // namespace cofferdam::egressproxy
