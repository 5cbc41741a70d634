// What the file system of a directory can hold of a layer, found out by doing it there: each probe
// makes one file of its own and removes it. An error says why it cannot.
#pragma once

#include <filesystem>

#include "common/base/result.h"

namespace cofferdam::os {

// A character device 0:0, overlayfs's whiteout (mknod(2); an ordinary user may make it since 5.8).
Status try_whiteout(const std::filesystem::path& directory);
// An extended attribute `user.*` (setxattr(2)).
Status try_attribute(const std::filesystem::path& directory);
// A clone of a file's bytes (ioctl_ficlone(2)).
Status try_reflink(const std::filesystem::path& directory);

}  // namespace cofferdam::os
