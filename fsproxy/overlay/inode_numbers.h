// InodeNumbers: which number a stat shows. Lower objects show their own, also after copy-up; what
// was born in upper shows a number outside the range that lower file systems use.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "common/base/result.h"
#include "common/layer/meta_store.h"

namespace cofferdam::overlay {

class InodeNumbers final {
 public:
  // 2^52 + n is exact in a double: programs in JavaScript compare inode numbers as doubles.
  static constexpr std::uint64_t kUpperBorn = 1ULL << 52U;

  // Loads what the layer remembers. `meta` may be null (no layer) and must outlive this.
  Status load(layer::MetaStore* meta);

  std::uint64_t shown(std::uint64_t upper_inode) const;
  // Before the object gets its name in upper.
  Status remember(std::uint64_t upper_inode, std::uint64_t shown);
  // The upper object is gone, or a new one was born with its number.
  Status forget(std::uint64_t upper_inode);

 private:
  layer::MetaStore* meta_ = nullptr;
  std::unordered_map<std::uint64_t, std::uint64_t> shown_;
};

}  // namespace cofferdam::overlay
