// The staging area of a native sandbox: a tmpfs in prepare's own mount namespace, from which the
// launcher binds. Nothing of it appears on the host.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
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

// An /etc put together at kStagedEtc; all paths are such of /etc.
struct EtcRequest {
  std::vector<std::string> binds;  // of the host: a directory is bound, a file copied
  std::vector<std::pair<std::string, std::string>> links;  // path → target
  std::vector<std::string> files;                          // of the staged files
};
Status stage_etc(const EtcRequest& etc);

// Copies `sizes.size()` files out of `contents` (one after the other), 0444: those of `etc` to
// their place there, the others to kStagedFiles/NUMBER. `paths` are where they are to be seen.
Status stage_files(int contents, const std::vector<std::uint64_t>& sizes,
                   const std::vector<std::string>& paths, const EtcRequest& etc);

// Mounts an opened /dev/fuse at `target`: nosuid, nodev, allow_other, default_permissions.
Status mount_fuse(int device, const std::string& target, bool read_only);

}  // namespace cofferdam::init
