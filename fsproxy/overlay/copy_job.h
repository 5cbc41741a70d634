// CopyJob: the long part of the copy-up of a large file, done by another thread while the view goes
// on.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "common/base/sha256.h"
#include "common/layer/meta_store.h"
#include "common/os/unique_fd.h"

namespace cofferdam::overlay {

struct CopyJob {
  os::UniqueFd from;           // the lower file
  os::UniqueFd to;             // staged in work/
  std::string staged;          // its name there
  layer::Version version;      // of the lower file before the copy
  std::uint64_t reserved = 0;  // of the quota
  std::atomic<bool> cancel{false};

  // Results of run(): valid when `done`.
  bool done = false;
  Sha256Digest sha256{};

  // Any thread, once.
  void run();
};

}  // namespace cofferdam::overlay
