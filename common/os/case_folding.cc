#include "common/os/case_folding.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "common/os/files.h"

namespace cofferdam::os {
namespace {

// statfs(2) and linux/magic.h: msdos, exfat, ntfs, ntfs3, cifs, smb2, hfs, hfs+, 9p (drvfs).
constexpr std::array<std::uint32_t, 9> kFolding = {
    0x4d44, 0x2011bab0, 0x5346544e, 0x7366746e, 0xff534d42, 0xfe534d42, 0x4244, 0x482b, 0x01021997};
constexpr unsigned long kCasefoldFlag = 0x40000000;  // FS_CASEFOLD_FL, absent in older headers

}  // namespace

bool folds_case(const std::string& directory) {
  const auto fd = open_file(directory, O_RDONLY | O_DIRECTORY);
  if (!fd.ok()) return false;
  struct statfs st {};
  if (::fstatfs(fd->get(), &st) == 0 &&
      std::find(kFolding.begin(), kFolding.end(), static_cast<std::uint32_t>(st.f_type)) !=
          kFolding.end()) {
    return true;
  }
  unsigned long flags = 0;
  return ::ioctl(fd->get(), FS_IOC_GETFLAGS, &flags) == 0 && (flags & kCasefoldFlag) != 0;
}

}  // namespace cofferdam::os
