// InodeNumbers: which number a stat shows. Lower objects show their own, also after copy-up; what
// was born in upper shows a number outside the range that lower file systems use.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>

#include "common/base/result.h"
#include "common/layer/layer_stack.h"
#include "common/layer/meta_store.h"

namespace cofferdam::overlay {

class InodeNumbers final {
 public:
  // 2^52 + n is exact in a double: programs in JavaScript compare inode numbers as doubles.
  static constexpr std::uint64_t kUpperBorn = layer::kBornInLayer;
  // Fresh numbers are above those of file systems and below those of what is born in a layer.
  static constexpr std::uint64_t kFresh = 1ULL << 51U;

  // Loads what the layer remembers. `meta` may be null (no layer) and must outlive this.
  Status load(layer::MetaStore* meta);

  std::uint64_t shown(std::uint64_t upper_inode) const;
  // Before the object gets its name in upper.
  Status remember(std::uint64_t upper_inode, std::uint64_t shown);
  // A new object was born with this inode number. Where another one still shows the number that it
  // would show, a fresh one is remembered.
  Status born(std::uint64_t upper_inode);
  // The upper object is gone.
  Status forget(std::uint64_t upper_inode);

 private:
  void note(std::uint64_t upper_inode, std::uint64_t shown);

  layer::MetaStore* meta_ = nullptr;
  std::unordered_map<std::uint64_t, std::uint64_t> shown_;
  std::unordered_set<std::uint64_t> taken_;  // numbers of shown_ that lower has not
  std::uint64_t next_fresh_ = kFresh;
};

}  // namespace cofferdam::overlay
