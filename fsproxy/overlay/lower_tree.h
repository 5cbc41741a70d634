// LowerTree: the original directory, read only, which its owner may change at any time.
#pragma once

#include <sys/stat.h>

#include <string>

#include "common/base/result.h"
#include "common/layer/meta_store.h"
#include "common/os/unique_fd.h"
#include "fsproxy/overlay/node.h"

namespace cofferdam::overlay {

struct LowerStat {
  struct stat st {};
  LowerIdentity identity;
  std::uint32_t layer = 0;  // the frozen layer that it lies in; 0: lower
  bool mount_root = false;  // another file system is mounted here: an empty directory for us
};

// The object (dir, name), never followed, or the directory itself for "". A mount point that is no
// directory does not exist.
Result<LowerStat> stat_lower(int dir_fd, const std::string& name);

struct LowerFile {
  os::UniqueFd fd;
  LowerStat now;
};

// How well a caller knows that a regular file or a directory is there: whoever has just looked, or
// is told of changes, need not look again.
enum class LowerKind : std::uint8_t { kKnown, kLook };

// A regular file or a directory for reading; `expected` must still be what is there (ESTALE).
Result<LowerFile> open_lower(int dir_fd, const std::string& name, const LowerIdentity& expected,
                             LowerKind kind);

layer::Version version_of(const struct stat& st);
std::int64_t to_ns(const struct timespec& time);

// The target of a symbolic link, any length.
Result<std::string> read_link(int dir_fd, const std::string& name);

}  // namespace cofferdam::overlay
