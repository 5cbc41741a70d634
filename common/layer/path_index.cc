#include "common/layer/path_index.h"

#include <algorithm>
#include <cstring>
#include <random>

namespace cofferdam::layer {
namespace {

// The workload chooses paths: where they fall must not be known to it.
std::uint64_t seed() {
  static const std::uint64_t value = [] {
    std::random_device source;
    return (static_cast<std::uint64_t>(source()) << 32U) | source();
  }();
  return value;
}

std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 32U;
  x *= 0xd6e8feb86659fd93ULL;
  x ^= x >> 32U;
  x *= 0xd6e8feb86659fd93ULL;
  return x ^ (x >> 32U);
}

}  // namespace

std::uint64_t PathIndex::hash(std::uint8_t kind, std::string_view path) {
  std::uint64_t state = mix(seed() ^ kind ^ (static_cast<std::uint64_t>(path.size()) << 8U));
  for (std::size_t at = 0; at < path.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t piece = 0;
    std::memcpy(&piece, path.data() + at, std::min(sizeof piece, path.size() - at));
    state = mix(state ^ piece);
  }
  return state;
}

void PathIndex::add(std::uint64_t hash, std::uint64_t at) {
  if (slots_.size() < 4 * (used_ + 1) / 3 + 8) grow();
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = hash & mask;
  while (slots_[i].second != 0) i = (i + 1) & mask;
  slots_[i] = {hash, at};
  ++used_;
}

void PathIndex::clear() {
  slots_.clear();
  used_ = 0;
}

void PathIndex::grow() {
  const auto before = std::move(slots_);
  slots_.assign(before.empty() ? 64 : before.size() * 2, {0, 0});
  used_ = 0;
  for (const auto& [hash, at] : before) {
    if (at != 0) add(hash, at);
  }
}

}  // namespace cofferdam::layer
