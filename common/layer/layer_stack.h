// The frozen layers of one layer directory on disk: where they lie, how they are opened, and how
// what a kill left half done is put right (docs/layer-format.md, "Frozen layers").
//
// A frozen layer is `layers/<n>/upper`, or lies in the directory of the sandbox that this one was
// forked from, which `layers/<n>.ref` then names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/layer/checkpoint_table.h"
#include "common/layer/meta_store.h"
#include "common/os/unique_fd.h"

namespace cofferdam::layer {

struct FrozenLayer {
  std::uint32_t number = 0;
  os::UniqueFd root;  // readable directory
};

// Where the layer with this number lies. An error where it is nowhere.
Result<std::filesystem::path> frozen_path(const std::filesystem::path& layer, std::uint32_t number);

// What upper stands on, the newest first.
Result<std::vector<FrozenLayer>> open_frozen(const std::filesystem::path& layer,
                                             const MetaStore& meta);

// Directories outside of the layer directory that hold frozen layers of it.
Result<std::vector<std::filesystem::path>> borrowed_layers(const std::filesystem::path& layer);

// Before a writer works with the layer: a freeze that did not get to its commit is taken back, and
// layers that nothing stands on any more are removed unless another sandbox does.
Status recover_layers(const std::filesystem::path& layer, const MetaStore& meta);

// Whether another sandbox stands on frozen layers of this directory.
bool has_users(const std::filesystem::path& layer);

// The stack as a reader finds it, whatever a writer does at the same time: upper first.
struct ReadStack {
  std::vector<os::UniqueFd> roots;
};
Result<ReadStack> open_stack(const std::filesystem::path& layer, const MetaStore& meta);

// The epoch that the name of an entry of `index/` tells (docs/layer-format.md).
std::uint32_t index_epoch(std::string_view name);

// The inode number that a stat shows of an object that was born in a layer.
constexpr std::uint64_t kBornInLayer = 1ULL << 52U;
constexpr std::uint64_t born_number(std::uint64_t inode) {
  return inode < kBornInLayer ? inode + kBornInLayer : inode ^ (1ULL << 62U);
}

}  // namespace cofferdam::layer
