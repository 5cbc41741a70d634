// PathIndex: where the records of a path are, in 16 bytes each. Remembers hashes and not paths:
// whoever asks looks at what it finds.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace cofferdam::layer {

class PathIndex final {
 public:
  // `kind` tells records of different kinds for one path apart.
  static std::uint64_t hash(std::uint8_t kind, std::string_view path);

  void add(std::uint64_t hash, std::uint64_t at);
  void clear();
  std::size_t size() const { return used_; }

  // Calls `visit` with the place of each record of that hash, in the order in which they were
  // added, until it says true.
  template <typename Visit>
  void find(std::uint64_t hash, const Visit& visit) const {
    if (slots_.empty()) return;
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t i = hash & mask; slots_[i].second != 0; i = (i + 1) & mask) {
      if (slots_[i].first == hash && visit(slots_[i].second)) return;
    }
  }
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (const auto& [hash, at] : slots_) {
      if (at != 0) visit(at);
    }
  }

 private:
  void grow();

  // A place of 0 is an empty slot: the log begins with a header. The size is a power of two.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> slots_;
  std::size_t used_ = 0;
};

}  // namespace cofferdam::layer
