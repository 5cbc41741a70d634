#include "common/os/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include "common/os/files.h"

namespace cofferdam::os {

Result<std::optional<FileLock>> FileLock::try_acquire(const std::filesystem::path& path) {
  TRY_ASSIGN(UniqueFd fd, open_file(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return std::optional<FileLock>();
    return Error::from_errno("flock " + path.string());
  }
  return std::optional<FileLock>(FileLock(std::move(fd)));
}

}  // namespace cofferdam::os
