#include "common/os/path_grants.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/os/files.h"

namespace cofferdam::os {
namespace {

// EXECUTE is for others: a program of the workspace that is read past the service (passthrough) is
// opened for execution with the service's credential. Its own filter has no execve(2).
constexpr std::uint64_t kRead =
    LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_EXECUTE;
constexpr std::uint64_t kFirst =
    kRead | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
    LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR |
    LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
    LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;
// ABI 2 and 3; the headers of the build may be older than the kernel.
constexpr std::uint64_t kRefer = 1ULL << 13U;
constexpr std::uint64_t kTruncate = 1ULL << 14U;

}  // namespace

Status keep_capabilities(const std::vector<int>& kept) {
  struct __user_cap_header_struct header {};
  header.version = _LINUX_CAPABILITY_VERSION_3;
  struct __user_cap_data_struct data[2] = {};
  if (::syscall(SYS_capget, &header, data) != 0) return Error::from_errno("capget");
  std::uint32_t mask[2] = {0, 0};
  for (const int number : kept) mask[number / 32] |= 1U << (static_cast<unsigned>(number) % 32U);
  for (int i = 0; i < 2; ++i) {
    data[i].permitted &= mask[i];
    data[i].effective = data[i].permitted;
    data[i].inheritable = 0;
  }
  if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0) {
    return Error::from_errno("PR_CAP_AMBIENT");
  }
  if (::syscall(SYS_capset, &header, data) != 0) return Error::from_errno("capset");
  return {};
}

Result<bool> restrict_paths(const std::vector<PathGrant>& grants) {
  const long abi =
      ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (abi < 0 && (errno == ENOSYS || errno == EOPNOTSUPP)) return false;
  if (abi < 0) return Error::from_errno("landlock");
  // Without ABI 2 no file could ever be renamed to another directory.
  if (abi < 2) return false;
  struct landlock_ruleset_attr attributes {};
  attributes.handled_access_fs = kFirst | kRefer | (abi >= 3 ? kTruncate : 0);
  const UniqueFd rules(
      static_cast<int>(::syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0)));
  if (!rules) return Error::from_errno("landlock ruleset");
  for (const PathGrant& grant : grants) {
    TRY_ASSIGN(const UniqueFd path, open_file(grant.path, O_PATH));
    struct landlock_path_beneath_attr beneath {};
    beneath.parent_fd = path.get();
    beneath.allowed_access = grant.write ? attributes.handled_access_fs : kRead;
    if (::syscall(SYS_landlock_add_rule, rules.get(), LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) !=
        0) {
      return Error::from_errno("landlock rule for " + grant.path);
    }
  }
  if (::syscall(SYS_landlock_restrict_self, rules.get(), 0) != 0) {
    return Error::from_errno("landlock restrict");
  }
  return true;
}

}  // namespace cofferdam::os
