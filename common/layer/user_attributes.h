// The extended attributes of an object of a layer that are the workload's: user.* but our own
// marks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace cofferdam::layer {

// Whether the name is that of a mark (overlayfs's or our own), which does not exist for the
// workload.
bool is_reserved_attribute(std::string_view name);

// Of what is open as `fd` (not O_PATH), in the order in which the file system gives them. Empty
// where the file system has none.
Result<std::vector<std::string>> user_attributes(int fd);
// The value; ENODATA where there is none.
Result<std::string> attribute_value(int fd, const std::string& name);

}  // namespace cofferdam::layer
