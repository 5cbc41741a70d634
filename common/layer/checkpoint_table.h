// CheckpointTable: which frozen layers a layer directory has, and on which of them its upper
// stands.
//
// Part of `meta` (docs/layer-format.md). A checkpoint is a frozen layer; its parent is the layer
// below it. Not thread safe; lives as long as the store that it was made of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/layer/meta_store.h"

namespace cofferdam::layer {

struct Checkpoint {
  std::uint32_t layer = 0;   // number of the frozen layer, 1 or more, never used twice
  std::uint32_t parent = 0;  // the layer below; 0: none, only lower is
  std::string id;            // the same in all mounts of the sandbox
  std::string name;          // what the user calls it; may be empty
  std::int64_t time_ns = 0;  // wall clock, since the epoch
};

struct StackHead {
  std::uint32_t parent = 0;  // the frozen layer that upper stands on; 0: none
  std::uint32_t next = 1;    // the number of the next layer to be frozen
};

class CheckpointTable final {
 public:
  explicit CheckpointTable(const MetaStore& meta) : meta_(&meta) {}

  Result<StackHead> head() const;
  // What upper stands on, the newest first.
  Result<std::vector<Checkpoint>> chain() const;

  // Upper was frozen as this checkpoint. One transaction, on disk when it returns.
  Status add(MetaStore& meta, const Checkpoint& checkpoint);
  // These, the oldest first, are all frozen layers from now on, and upper stands on the last.
  // `next` grows to be above them and `used`. One transaction, on disk when it returns.
  Status replace(MetaStore& meta, const std::vector<Checkpoint>& chain, std::uint32_t used);

 private:
  const MetaStore* meta_;
};

}  // namespace cofferdam::layer
