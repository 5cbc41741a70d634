// Single objects (a file, a link, an empty directory) copied with all that the kernel keeps about
// them, and what new objects inherit. Directories are held by descriptors, names are single
// components; no link is followed.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace cofferdam::os {

// Extended attributes and access control lists of `from` on `to`, both open and not O_PATH. File
// capabilities speak for content: they only go along with `same_content`. What only a privileged
// caller could carry over (security.*, trusted.*) is left out silently where that is refused.
Status copy_attributes(int from, int to, bool same_content);

// What a new object in `directory` would get from its default access control list (acl(5)); nothing
// where it has none. `is_directory`: the default list goes along too. chmod the object afterwards.
Status inherit_access_list(int directory, int object, bool is_directory);

// Copies a regular file (reflink where the file system can), a link or an empty directory, with
// mode, times, attributes, and owner where the caller may give that. An existing target of that
// name is replaced; directories only when empty.
Status copy_object(int from_directory, std::string_view from, int to_directory,
                   std::string_view to);

// Removes a file, a link or an empty directory; a missing one is fine.
Status remove_object(int directory, std::string_view name);

// fsync(2) of a directory, so that the names in it are durable.
Status sync_directory(const std::filesystem::path& path);

}  // namespace cofferdam::os
