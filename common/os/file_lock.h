// FileLock: an exclusive flock(2) held for the life of the object. The descriptor is CLOEXEC and
// must be in no child, so that the lock's end is the owner's end.
#pragma once

#include <filesystem>
#include <optional>

#include "common/base/result.h"
#include "common/os/unique_fd.h"

namespace cofferdam::os {

class FileLock final {
 public:
  // Nothing when another process holds it; errors are errors of open or flock.
  static Result<std::optional<FileLock>> try_acquire(const std::filesystem::path& path);
  // The same on an open directory (not O_PATH); a description of its own is locked.
  static Result<std::optional<FileLock>> try_acquire_directory(int directory);
  int fd() const { return fd_.get(); }

 private:
  explicit FileLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace cofferdam::os
