// Squash: all frozen layers of a layer directory become one, which shows the same.
//
// Files are not copied but get a further name, so that inode numbers stay. Whoever squashes is the
// only one who works with the layer, and no other sandbox stands on it. A kill leaves the old
// layers or the new one; recover_layers() removes what is too much.
#pragma once

#include <filesystem>

#include "common/base/result.h"
#include "common/layer/meta_store.h"

namespace cofferdam::layer {

// How many layers became one; 0: there was nothing to do.
Result<std::size_t> squash_layers(const std::filesystem::path& layer, MetaStore& meta);

}  // namespace cofferdam::layer
