// The staging area of a native sandbox: a tmpfs in prepare's own mount namespace, from which the
// launcher binds. Nothing of it appears on the host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/os/unique_fd.h"

namespace cofferdam::init {

struct StagingSizes {
  std::uint64_t tmp_bytes = 0;
  bool tmp_exec = true;
  std::uint64_t shm_bytes = 0;
};

// Makes every mount private, mounts the tmpfs over kStaging with its directories, a sized /tmp and
// /dev/shm, and puts the init itself (`program`) and an empty file without any permission, the
// mask, there.
Status make_staging(const StagingSizes& sizes, int program);

// Copies `sizes.size()` files out of `contents` (one after the other) to kStagedFiles/0…, 0444.
Status stage_files(int contents, const std::vector<std::uint64_t>& sizes);

// Mounts an opened /dev/fuse at `target`: nosuid, nodev, allow_other, default_permissions.
Status mount_fuse(int device, const std::string& target, bool read_only);

}  // namespace cofferdam::init
