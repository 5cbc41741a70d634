#include "common/os/unmount.h"

#include <sys/mount.h>

#include <cerrno>

namespace cofferdam::os {

Status unmount_if_mounted(const std::filesystem::path& path) {
  if (::umount2(path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) return {};
  if (errno == EINVAL || errno == ENOENT) return {};
  return Error::from_errno("unmount " + path.string());
}

}  // namespace cofferdam::os
