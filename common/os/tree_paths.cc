#include "common/os/tree_paths.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>

#include "common/os/beneath.h"

namespace cofferdam::os {
namespace {

Status rename_with(int from_directory, std::string_view from, int to_directory, std::string_view to,
                   unsigned flags, std::string_view what) {
  const std::string from_name(from);
  const std::string to_name(to);
  if (::renameat2(from_directory, from_name.c_str(), to_directory, to_name.c_str(), flags) != 0) {
    // What rename(2) with flags says where a file system knows none of them.
    if (errno == EINVAL) {
      return Error(
          std::string(what) +
              ": this file system has no RENAME_EXCHANGE and RENAME_NOREPLACE; they are in "
              "ext4, xfs, btrfs, tmpfs and overlayfs: work on a copy there, or use "
              "cofferdam export and git apply",
          EINVAL);
    }
    return Error::from_errno(what);
  }
  return {};
}

}  // namespace

bool is_tree_path(std::string_view path) {
  if (path.size() > kMaxTreePath || path.find('\0') != std::string_view::npos) return false;
  if (path.empty()) return true;
  while (true) {
    const std::size_t slash = path.find('/');
    const std::string_view name = path.substr(0, slash);
    if (name.empty() || name == "." || name == "..") return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

std::string_view parent_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

std::string_view leaf_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

Result<UniqueFd> open_in_tree(int root, std::string_view path, int flags) {
  if (!is_tree_path(path)) return Error::from_errno("open", EINVAL);
  if ((flags & O_PATH) == 0) flags |= O_NONBLOCK;
  return open_beneath(root, path.empty() ? "." : std::string(path), flags);
}

Result<UniqueFd> open_parent_in_tree(int root, std::string_view path) {
  return open_in_tree(root, parent_of(path), O_PATH | O_DIRECTORY);
}

Result<struct stat> stat_in(int directory, std::string_view name) {
  struct stat st {};
  const std::string text(name);
  if (::fstatat(directory, text.c_str(), &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) != 0) {
    return Error::from_errno("stat");
  }
  return st;
}

Status for_each_name(int directory, const std::function<Status(std::string_view name)>& visit) {
  if (::lseek(directory, 0, SEEK_SET) != 0) return Error::from_errno("rewind directory");
  constexpr std::size_t kBytes = 32768;
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(kBytes);
  while (true) {
    const ssize_t got = ::getdents64(directory, buffer.get(), kBytes);
    if (got < 0) return Error::from_errno("read directory");
    if (got == 0) return {};
    for (std::size_t at = 0; at < static_cast<std::size_t>(got);) {
      // A record of getdents(2): its length, then the name with a NUL.
      const std::byte* record = buffer.get() + at;
      unsigned short length = 0;
      std::memcpy(&length, record + offsetof(struct dirent64, d_reclen), sizeof length);
      const std::string_view name(
          reinterpret_cast<const char*>(record + offsetof(struct dirent64, d_name)));
      at += length;
      if (name != "." && name != "..") TRY(visit(name));
    }
  }
}

Result<std::string> read_link_in(int directory, std::string_view name) {
  const std::string text(name);
  std::string buffer(4096, '\0');
  const ssize_t got = ::readlinkat(directory, text.c_str(), buffer.data(), buffer.size());
  if (got < 0) return Error::from_errno("readlink");
  buffer.resize(static_cast<std::size_t>(got));
  return buffer;
}

Status rename_exchange(int from_directory, std::string_view from, int to_directory,
                       std::string_view to) {
  return rename_with(from_directory, from, to_directory, to, RENAME_EXCHANGE, "exchange");
}

Status rename_no_replace(int from_directory, std::string_view from, int to_directory,
                         std::string_view to) {
  return rename_with(from_directory, from, to_directory, to, RENAME_NOREPLACE, "rename");
}

Status sync_file_system(int fd) {
  if (::syncfs(fd) != 0) return Error::from_errno("syncfs");
  return {};
}

}  // namespace cofferdam::os
