// BaseStore: the content of lower files before they were changed, by its hash (`base/` of a layer).
//
// What is stored counts in the ledger. Where the quota or the disk has no room, content is not
// stored: its hash is what a merge then has.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/base/result.h"
#include "common/base/sha256.h"
#include "common/os/unique_fd.h"
#include "fsproxy/overlay/ledger.h"

namespace cofferdam::overlay {

class BaseStore final {
 public:
  // Larger content is only hashed.
  static constexpr std::uint64_t kMaxContent = 4ULL << 20U;

  // `base_dir` and `work_dir` are the layer's, on one file system; `ledger` must outlive this.
  BaseStore(os::UniqueFd base_dir, os::UniqueFd work_dir, Ledger& ledger)
      : base_dir_(std::move(base_dir)), work_dir_(std::move(work_dir)), ledger_(&ledger) {}
  // Stores nothing, ever.
  explicit BaseStore(Ledger& ledger) : ledger_(&ledger) {}

  // Whether the content is stored now.
  Result<bool> put(const Sha256Digest& digest, std::string_view content);

  int directory() const { return base_dir_.get(); }

 private:
  Status write_whole(const char* staged, std::string_view content);

  os::UniqueFd base_dir_;
  os::UniqueFd work_dir_;
  Ledger* ledger_;
};

}  // namespace cofferdam::overlay
