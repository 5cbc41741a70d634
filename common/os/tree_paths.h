// Paths of several components below a held directory that somebody hostile may have written.
//
// Resolved by open_beneath: no link is ever followed, no mount crossed. Paths are relative bytes
// without ".", ".." or empty components, at most kMaxTreePath long; "" is the root itself.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/os/unique_fd.h"

namespace cofferdam::os {

inline constexpr std::size_t kMaxTreePath = 4095;

// Whether `path` is of the form described above.
bool is_tree_path(std::string_view path);

std::string_view parent_of(std::string_view path);  // "" for a name without a slash
std::string_view leaf_of(std::string_view path);

// Opens `path` below `root`; O_CLOEXEC, O_NOFOLLOW and O_NONBLOCK are added.
Result<UniqueFd> open_in_tree(int root, std::string_view path, int flags);
// An O_PATH descriptor of the directory that holds `path`.
Result<UniqueFd> open_parent_in_tree(int root, std::string_view path);
// lstat of one name in an open directory.
Result<struct stat> stat_in(int directory, std::string_view name);

// The names of a directory but "." and "..", in no order. `directory` must not be O_PATH; its
// position is used: one listing at a time. The visitor's error ends the listing.
Status for_each_name(int directory, const std::function<Status(std::string_view name)>& visit);

Result<std::string> read_link_in(int directory, std::string_view name);

// renameat2(2) with RENAME_EXCHANGE and RENAME_NOREPLACE.
Status rename_exchange(int from_directory, std::string_view from, int to_directory,
                       std::string_view to);
Status rename_no_replace(int from_directory, std::string_view from, int to_directory,
                         std::string_view to);

// syncfs(2) of the file system that holds `fd`.
Status sync_file_system(int fd);

}  // namespace cofferdam::os
