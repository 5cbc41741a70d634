// Freeze: an upper becomes a frozen layer, and an empty one takes its place. Costs the same
// whatever upper holds, but for what of it is not on disk yet.
//
// Whoever freezes is the only writer of the layer, and nothing is written into upper between
// prepare() and the end. A kill before the commit leaves what was before it (recover_layers takes
// it back), one after it the checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "common/base/result.h"
#include "common/layer/checkpoint_table.h"
#include "common/layer/meta_store.h"

namespace cofferdam::layer {

class Freeze final {
 public:
  // Makes the new upper, dressed like the present one, and writes what is in memory to disk.
  static Result<Freeze> prepare(const std::filesystem::path& layer, MetaStore& meta);

  // The two change places, in one step.
  Status exchange();
  // After exchange(): it stays. `checkpoint.layer` and `.parent` are filled in.
  Status commit(Checkpoint& checkpoint);
  // Instead of commit(): the state becomes that of the checkpoint with this id, and what came after
  // it is no part of it any more; recover_layers() removes it. The new upper is dressed like that
  // checkpoint's. ENOENT where upper does not stand on such a one.
  Status commit_rollback(const std::string& id);
  // Everything as before prepare(); not after commit().
  Status take_back();

  std::uint32_t number() const { return number_; }
  std::uint64_t new_inode() const { return new_inode_; }  // of the new upper's root

 private:
  Freeze(std::filesystem::path layer, MetaStore& meta) : layer_(std::move(layer)), meta_(&meta) {}

  std::filesystem::path layer_;
  MetaStore* meta_;
  std::uint32_t number_ = 0;
  std::uint32_t parent_ = 0;
  std::uint64_t new_inode_ = 0;
};

// Takes a freeze without a commit back, whoever began it.
Status take_back_freeze(const std::filesystem::path& layer, std::uint32_t number);

// Whether `upper_fd` is the new upper of the freeze whose directory `fresh` is (it may be missing).
Result<bool> is_exchanged(const std::filesystem::path& fresh, int upper_fd);

}  // namespace cofferdam::layer
