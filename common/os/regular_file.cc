#include "common/os/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "common/os/files.h"

namespace cofferdam::os {

Result<std::string> read_regular_file(const std::filesystem::path& path, std::size_t limit) {
  TRY_ASSIGN(const UniqueFd fd, open_file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return Error::from_errno("stat " + path.string());
  if (!S_ISREG(st.st_mode)) return Error(path.string() + ": not a regular file");
  return read_fd(fd.get(), limit).context(path.string());
}

}  // namespace cofferdam::os
