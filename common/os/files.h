// Whole files and directories by path, for paths that the caller trusts (its own state, policy
// files). Nothing here is for paths that a workload chose.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/os/unique_fd.h"

namespace cofferdam::os {

// open(2) with O_CLOEXEC added; EINTR is retried. `mode` only matters with O_CREAT.
Result<UniqueFd> open_file(const std::filesystem::path& path, int flags, mode_t mode = 0600);

// The whole content; an error past `limit` bytes.
Result<std::string> read_file(const std::filesystem::path& path, std::size_t limit = 64U << 20U);
Result<std::string> read_fd(int fd, std::size_t limit = 64U << 20U);

// All of `bytes`, EINTR and short writes handled.
Status write_all(int fd, std::string_view bytes);

// Replaces `path` as a whole: temporary beside it, fsync, rename. Mode 0600 unless told.
Status write_file_atomic(const std::filesystem::path& path, std::string_view bytes,
                         mode_t mode = 0600);

// mkdir -p with `mode` for what is created; existing directories are left as they are.
Status make_directories(const std::filesystem::path& path, mode_t mode = 0700);

// Removes the tree without following links and without recursion in depth; a missing one is fine.
Status remove_tree(const std::filesystem::path& path);

// A directory made by mkdtemp below `parent`, removed with all its content by the destructor.
class TempDir final {
 public:
  static Result<TempDir> create(const std::filesystem::path& parent, std::string_view prefix);
  TempDir(TempDir&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }
  TempDir& operator=(TempDir&& other) noexcept;
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir();
  const std::filesystem::path& path() const { return path_; }

 private:
  explicit TempDir(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

}  // namespace cofferdam::os
