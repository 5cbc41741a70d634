#include <algorithm>
#include <charconv>

#include "orchestrator/host_facts.h"

namespace cofferdam::orchestrator {
namespace {

constexpr std::uint32_t kNeeded = 65537;
constexpr std::uint32_t kFirstSlot = 0x70000000;
constexpr std::uint32_t kSlotSize = 0x20000;
constexpr std::uint32_t kSlots = 2048;

bool overlaps(std::uint64_t first_a, std::uint64_t count_a, std::uint64_t first_b,
              std::uint64_t count_b) {
  return first_a < first_b + count_b && first_b < first_a + count_a;
}

}  // namespace

Result<std::uint32_t> choose_id_range(const HostFacts& facts, std::string_view sandbox_id,
                                      const std::vector<std::uint32_t>& live) {
  const auto is_free = [&](std::uint32_t first) {
    const auto hits_live = [&](std::uint32_t base) {
      return overlaps(first, kNeeded, base, kNeeded);
    };
    const auto hits_taken = [&](const IdRange& range) {
      return overlaps(first, kNeeded, range.first, range.count);
    };
    return std::none_of(live.begin(), live.end(), hits_live) &&
           std::none_of(facts.taken_ids.begin(), facts.taken_ids.end(), hits_taken);
  };
  for (const IdRange& range : facts.subordinate_ids) {
    std::uint64_t first = range.first;
    const std::uint64_t end = std::min<std::uint64_t>(first + range.count, 0xFFFFFFFFULL);
    for (; first + kNeeded <= end; first += kNeeded) {
      if (first != 0 && is_free(static_cast<std::uint32_t>(first))) {
        return static_cast<std::uint32_t>(first);
      }
    }
  }
  std::uint64_t number = 0;
  (void)std::from_chars(sandbox_id.data(), sandbox_id.data() + sandbox_id.size(), number, 16);
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    const auto slot = static_cast<std::uint32_t>((number + i) % kSlots);
    const std::uint32_t first = kFirstSlot + slot * kSlotSize;
    if (is_free(first)) return first;
  }
  return Error("no range of 65537 unused user ids is left; end some sandboxes (cofferdam ps)");
}

}  // namespace cofferdam::orchestrator
