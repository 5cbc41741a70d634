// Walks of whole trees of a layer: without recursion, without following links, with a handful of
// descriptors however deep the tree is.
#pragma once

#include <dirent.h>
#include <sys/stat.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace cofferdam::overlay {

struct DirCloser {
  void operator()(DIR* dir) const { ::closedir(dir); }
};
using DirStream = std::unique_ptr<DIR, DirCloser>;

// A stream over the directory (dir, name) or, with ".", over the directory itself.
Result<DirStream> open_stream(int dir_fd, const std::string& name);

struct NamedType {
  std::string name;
  mode_t type = 0;  // S_IFMT bits, never 0
  ino_t inode = 0;
};
// The next entry that is not "." or "..".
Result<std::optional<NamedType>> next_entry(DIR* stream);

// Every object below the directory, parents before their children. What may not be opened is not
// entered.
Status walk_below(int dir_fd, const std::function<void(const struct stat&)>& visit);

// Removes everything below the directory.
Status remove_below(int dir_fd);

}  // namespace cofferdam::overlay
