#include "common/os/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include "common/os/files.h"

namespace cofferdam::os {

namespace {

// Whether the lock is ours now.
Result<bool> lock(int fd) {
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
  if (errno == EWOULDBLOCK) return false;
  return Error::from_errno("flock");
}

}  // namespace

Result<std::optional<FileLock>> FileLock::try_acquire(const std::filesystem::path& path) {
  TRY_ASSIGN(UniqueFd fd, open_file(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
  TRY_ASSIGN(const bool ours, lock(fd.get()).context(path.string()));
  if (!ours) return std::optional<FileLock>();
  return std::optional<FileLock>(FileLock(std::move(fd)));
}

Result<std::optional<FileLock>> FileLock::try_acquire_directory(int directory) {
  UniqueFd fd(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return Error::from_errno("open directory");
  TRY_ASSIGN(const bool ours, lock(fd.get()));
  if (!ours) return std::optional<FileLock>();
  return std::optional<FileLock>(FileLock(std::move(fd)));
}

}  // namespace cofferdam::os
