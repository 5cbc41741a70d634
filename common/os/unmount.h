// Taking a mount away from where it is, for what a dead owner left behind.
#pragma once

#include <filesystem>

#include "common/base/result.h"

namespace cofferdam::os {

// umount2(2) with MNT_DETACH and UMOUNT_NOFOLLOW. What is not a mount, or not there, is fine.
Status unmount_if_mounted(const std::filesystem::path& path);

}  // namespace cofferdam::os
