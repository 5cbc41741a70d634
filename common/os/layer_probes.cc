#include "common/os/layer_probes.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/os/files.h"

namespace cofferdam::os {

Status try_whiteout(const std::filesystem::path& directory) {
  TRY_ASSIGN(const TempDir made, TempDir::create(directory, "probe-"));
  const auto file = made.path() / "whiteout";
  if (::mknod(file.c_str(), S_IFCHR | 0000, ::makedev(0, 0)) != 0)
    return Error::from_errno("mknod");
  return {};
}

Status try_attribute(const std::filesystem::path& directory) {
  TRY_ASSIGN(const TempDir made, TempDir::create(directory, "probe-"));
  if (::setxattr(made.path().c_str(), "user.cofferdam.probe", "1", 1, 0) != 0) {
    return Error::from_errno("setxattr");
  }
  return {};
}

Status try_reflink(const std::filesystem::path& directory) {
  TRY_ASSIGN(const TempDir made, TempDir::create(directory, "probe-"));
  TRY_ASSIGN(const UniqueFd from, open_file(made.path() / "from", O_RDWR | O_CREAT | O_EXCL, 0600));
  TRY(write_all(from.get(), "bytes"));
  TRY_ASSIGN(const UniqueFd to, open_file(made.path() / "to", O_RDWR | O_CREAT | O_EXCL, 0600));
  if (::ioctl(to.get(), FICLONE, from.get()) != 0) return Error::from_errno("FICLONE");
  return {};
}

}  // namespace cofferdam::os
