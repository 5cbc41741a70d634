#include "common/os/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/os/files.h"

namespace cofferdam::os {

Result<UniqueFd> make_memory_file(const char* name, std::string_view content) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return Error::from_errno("memfd_create");
  TRY(write_all(fd.get(), content));
  TRY(rewind_file(fd.get()));
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) !=
      0) {
    return Error::from_errno("F_ADD_SEALS");
  }
  return fd;
}

Result<UniqueFd> make_empty_memory_file(const char* name) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC));
  if (!fd) return Error::from_errno("memfd_create");
  return fd;
}

Status rewind_file(int fd) {
  if (::lseek(fd, 0, SEEK_SET) != 0) return Error::from_errno("lseek");
  return {};
}

}  // namespace cofferdam::os
