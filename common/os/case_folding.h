// Whether a directory's names are compared without regard to case.
#pragma once

#include <string>

namespace cofferdam::os {

// True for file systems that fold case (FAT, exFAT, NTFS, CIFS, HFS+, drives of a Windows host) and
// for directories with the casefold attribute (ext4, f2fs). False where it cannot be told.
bool folds_case(const std::string& directory);

}  // namespace cofferdam::os
