#include "fsproxy/overlay/ledger.h"

namespace cofferdam::overlay {
namespace {

void change(std::uint64_t& value, std::int64_t by) {
  if (by < 0 && static_cast<std::uint64_t>(-by) > value) {
    value = 0;
  } else {
    value += static_cast<std::uint64_t>(by);
  }
}

}  // namespace

bool Ledger::reserve(std::uint64_t bytes, std::uint64_t entries) {
  const std::lock_guard lock(mutex_);
  // Subtractions, so that a huge request cannot wrap.
  if (used_.bytes > limit_.bytes || bytes > limit_.bytes - used_.bytes) {
    if (bytes > 0) return false;
  }
  if (entries > 0 && (used_.entries > limit_.entries || entries > limit_.entries - used_.entries)) {
    return false;
  }
  used_.bytes += bytes;
  used_.entries += entries;
  return true;
}

void Ledger::settle(std::uint64_t reserved_bytes, std::int64_t real_bytes) {
  add(real_bytes - static_cast<std::int64_t>(reserved_bytes), 0);
}

void Ledger::add(std::int64_t bytes, std::int64_t entries) {
  const std::lock_guard lock(mutex_);
  change(used_.bytes, bytes);
  change(used_.entries, entries);
}

LedgerTotals Ledger::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

}  // namespace cofferdam::overlay
