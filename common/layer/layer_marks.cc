#include "common/layer/layer_marks.h"

#include <fcntl.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/os/files.h"

namespace cofferdam::layer {
namespace {

constexpr const char* kTrustedOpaque = "trusted.overlay.opaque";
constexpr const char* kUserOpaque = "user.overlay.opaque";

Result<bool> carries(int dir_fd, const char* mark) {
  char value = 0;
  const ssize_t got = ::fgetxattr(dir_fd, mark, &value, 1);
  if (got == 1) return value == 'y';
  if (got == 0 || errno == ENODATA || errno == EOPNOTSUPP || errno == EPERM || errno == ERANGE) {
    return false;
  }
  return Error::from_errno("read opaque mark");
}

}  // namespace

MarkNamespace own_mark_namespace() {
  if (::geteuid() != 0) return MarkNamespace::kUser;
  // "0 0 4294967295" is the initial user namespace's map (user_namespaces(7)).
  auto map = os::read_file("/proc/self/uid_map", 4096);
  if (!map.ok() || map->find("4294967295") == std::string::npos) return MarkNamespace::kUser;
  return MarkNamespace::kTrusted;
}

bool is_whiteout(const struct stat& st) {
  return S_ISCHR(st.st_mode) && st.st_rdev == 0;
}

Result<bool> has_whiteout(int dir_fd, const std::string& name) {
  struct stat st {};
  if (::fstatat(dir_fd, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return false;
    return Error::from_errno("stat " + name);
  }
  return is_whiteout(st);
}

Status make_whiteout(int dir_fd, const std::string& name) {
  if (::mknodat(dir_fd, name.c_str(), S_IFCHR, makedev(0, 0)) != 0) {
    return Error::from_errno("whiteout " + name);
  }
  return {};
}

Result<bool> is_opaque(int dir_fd) {
  TRY_ASSIGN(const bool trusted, carries(dir_fd, kTrustedOpaque));
  if (trusted) return true;
  return carries(dir_fd, kUserOpaque);
}

Status set_opaque(int dir_fd, MarkNamespace where) {
  const char* mark = where == MarkNamespace::kTrusted ? kTrustedOpaque : kUserOpaque;
  if (::fsetxattr(dir_fd, mark, "y", 1, 0) != 0) {
    return Error::from_errno(std::string("set ") + mark);
  }
  return {};
}

}  // namespace cofferdam::layer
