// Opening names below a held directory without ever leaving it, and the copy primitives that glibc
// has no wrapper for. For trees that somebody else may change at the same time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "common/base/result.h"
#include "common/os/unique_fd.h"

namespace cofferdam::os {

// openat2(2) with RESOLVE_BENEATH, NO_MAGICLINKS, NO_SYMLINKS and NO_XDEV, O_CLOEXEC and O_NOFOLLOW
// added. EXDEV: another file system is mounted there.
Result<UniqueFd> open_beneath(int dir_fd, const std::string& name, int flags, mode_t mode = 0);

// What lies at an absolute path of which no part is a link (ELOOP).
Result<UniqueFd> open_unlinked(const std::string& path, int flags);

// FICLONE (ioctl_ficlonerange(2)): `to` shares the extents of `from`.
Status clone_file(int from, int to);

// Raises the soft limit of open files to the hard one and returns it.
std::uint64_t raise_open_files_limit();

}  // namespace cofferdam::os
