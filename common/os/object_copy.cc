#include "common/os/object_copy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <vector>

#include "common/os/beneath.h"
#include "common/os/files.h"
#include "common/os/tree_paths.h"

namespace cofferdam::os {
namespace {

constexpr const char* kAccessList = "system.posix_acl_access";
constexpr const char* kDefaultList = "system.posix_acl_default";

bool no_attributes(int error_number) {
  return error_number == ENOTSUP || error_number == ENODATA;
}

Result<std::vector<std::string>> attribute_names(int fd) {
  std::vector<std::string> names;
  std::string list(4096, '\0');
  while (true) {
    const ssize_t got = ::flistxattr(fd, list.data(), list.size());
    if (got >= 0) {
      list.resize(static_cast<std::size_t>(got));
      break;
    }
    if (no_attributes(errno)) return names;
    if (errno != ERANGE || list.size() > (1U << 20U)) return Error::from_errno("listxattr");
    list.resize(list.size() * 2);
  }
  for (std::size_t begin = 0; begin < list.size();) {
    const std::size_t end = list.find('\0', begin);
    names.push_back(list.substr(begin, end - begin));
    if (end == std::string::npos) break;
    begin = end + 1;
  }
  return names;
}

// Whether there is one.
Result<bool> read_attribute(int fd, const char* name, std::string& value) {
  value.assign(65536, '\0');
  const ssize_t got = ::fgetxattr(fd, name, value.data(), value.size());
  if (got < 0) {
    if (no_attributes(errno)) return false;
    return Error::from_errno(std::string("getxattr ") + name);
  }
  value.resize(static_cast<std::size_t>(got));
  return true;
}

bool needs_privilege(std::string_view name) {
  return name.starts_with("security.") || name.starts_with("trusted.");
}

Status copy_bytes(int from, int to) {
  if (clone_file(from, to).ok()) return {};
  while (true) {
    const ssize_t moved = ::copy_file_range(from, nullptr, to, nullptr, 1U << 30U, 0);
    if (moved == 0) return {};
    if (moved > 0) continue;
    if (errno == EINTR) continue;
    break;
  }
  // Offsets are where the copy stopped: the rest by hand.
  std::array<char, 65536> buffer{};
  while (true) {
    const ssize_t got = ::read(from, buffer.data(), buffer.size());
    if (got == 0) return {};
    if (got < 0) {
      if (errno == EINTR) continue;
      return Error::from_errno("read");
    }
    TRY(write_all(to, {buffer.data(), static_cast<std::size_t>(got)}));
  }
}

// Owner first: it takes set-id bits away, which the mode then brings back.
Status copy_metadata(int from, int to, const struct stat& st) {
  if (::fchown(to, st.st_uid, st.st_gid) != 0 && errno != EPERM) return Error::from_errno("chown");
  TRY(copy_attributes(from, to, true));
  if (::fchmod(to, st.st_mode & 07777U) != 0) return Error::from_errno("chmod");
  const std::array<struct timespec, 2> times = {st.st_atim, st.st_mtim};
  if (::futimens(to, times.data()) != 0) return Error::from_errno("utimens");
  return {};
}

}  // namespace

Status copy_attributes(int from, int to, bool same_content) {
  TRY_ASSIGN(const std::vector<std::string> names, attribute_names(from));
  std::string value;
  for (const std::string& name : names) {
    if (name == "security.capability" && !same_content) continue;
    // Measured over the content by the kernel itself.
    if (name == "security.ima" || name == "security.evm") continue;
    TRY_ASSIGN(const bool there, read_attribute(from, name.c_str(), value));
    if (!there || ::fsetxattr(to, name.c_str(), value.data(), value.size(), 0) == 0) continue;
    const int number = errno;
    if (needs_privilege(name) && (number == EPERM || number == EACCES || number == ENOTSUP)) {
      continue;
    }
    return Error::from_errno("setxattr " + name, number);
  }
  return {};
}

Status inherit_access_list(int directory, int object, bool is_directory) {
  std::string value;
  TRY_ASSIGN(const bool there, read_attribute(directory, kDefaultList, value));
  if (!there || value.empty()) return {};
  if (::fsetxattr(object, kAccessList, value.data(), value.size(), 0) != 0) {
    return Error::from_errno("setxattr");
  }
  if (is_directory && ::fsetxattr(object, kDefaultList, value.data(), value.size(), 0) != 0) {
    return Error::from_errno("setxattr");
  }
  return {};
}

Status copy_object(int from_directory, std::string_view from, int to_directory,
                   std::string_view to) {
  const std::string name(to);
  TRY_ASSIGN(const struct stat st, stat_in(from_directory, from));
  TRY(remove_object(to_directory, name));
  if (S_ISLNK(st.st_mode)) {
    TRY_ASSIGN(const std::string text, read_link_in(from_directory, from));
    if (::symlinkat(text.c_str(), to_directory, name.c_str()) != 0) {
      return Error::from_errno("symlink");
    }
    if (::fchownat(to_directory, name.c_str(), st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW) != 0 &&
        errno != EPERM) {
      return Error::from_errno("chown");
    }
    const std::array<struct timespec, 2> times = {st.st_atim, st.st_mtim};
    (void)::utimensat(to_directory, name.c_str(), times.data(), AT_SYMLINK_NOFOLLOW);
    return {};
  }
  if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
    return Error("neither a file, a link nor a directory", EINVAL);
  }
  const bool is_directory = S_ISDIR(st.st_mode);
  TRY_ASSIGN(const UniqueFd source,
             open_in_tree(from_directory, from, O_RDONLY | (is_directory ? O_DIRECTORY : 0)));
  if (is_directory) {
    if (::mkdirat(to_directory, name.c_str(), 0700) != 0) return Error::from_errno("mkdir");
    TRY_ASSIGN(const UniqueFd target, open_in_tree(to_directory, name, O_RDONLY | O_DIRECTORY));
    return copy_metadata(source.get(), target.get(), st);
  }
  const UniqueFd target(::openat(to_directory, name.c_str(),
                                 O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!target) return Error::from_errno("create");
  TRY(copy_bytes(source.get(), target.get()));
  return copy_metadata(source.get(), target.get(), st);
}

Status remove_object(int directory, std::string_view name) {
  const std::string text(name);
  if (::unlinkat(directory, text.c_str(), 0) == 0 || errno == ENOENT) return {};
  if (errno != EISDIR && errno != EPERM) return Error::from_errno("unlink");
  if (::unlinkat(directory, text.c_str(), AT_REMOVEDIR) == 0) return {};
  return Error::from_errno("rmdir");
}

Status sync_directory(const std::filesystem::path& path) {
  TRY_ASSIGN(const UniqueFd fd, open_file(path, O_RDONLY | O_DIRECTORY));
  if (::fsync(fd.get()) != 0) return Error::from_errno("fsync " + path.string());
  return {};
}

}  // namespace cofferdam::os
