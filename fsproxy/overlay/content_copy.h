// Copies the content of one regular file to another: shared extents where the file system can,
// else inside the kernel, else by hand. Holes stay holes.
#pragma once

#include <sys/types.h>

#include "common/base/result.h"

namespace cofferdam::overlay {

// `to` is empty and open for writing; afterwards it has `size` bytes.
Status copy_content(int from, int to, off_t size);

}  // namespace cofferdam::overlay
