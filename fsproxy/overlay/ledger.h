// Ledger: the quota on bytes and entries of all upper layers of a sandbox. Thread safe: the mounts
// of one sandbox share it.
//
// Bytes are allocated blocks (st_blocks), so sparse files cost what they hold. Growth is reserved
// before it happens and settled with what really happened.
#pragma once

#include <cstdint>
#include <mutex>

namespace cofferdam::overlay {

struct LedgerTotals {
  std::uint64_t bytes = 0;
  std::uint64_t entries = 0;
};

class Ledger final {
 public:
  Ledger(std::uint64_t max_bytes, std::uint64_t max_entries) : limit_{max_bytes, max_entries} {}

  // Whether the growth fits; it counts from now on.
  [[nodiscard]] bool reserve(std::uint64_t bytes, std::uint64_t entries);
  // Replaces a reservation by the truth, which is never refused.
  void settle(std::uint64_t reserved_bytes, std::int64_t real_bytes);
  void add(std::int64_t bytes, std::int64_t entries);

  LedgerTotals used() const;
  LedgerTotals limit() const { return limit_; }

 private:
  mutable std::mutex mutex_;
  LedgerTotals limit_;
  LedgerTotals used_;
};

}  // namespace cofferdam::overlay
