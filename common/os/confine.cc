#include "common/os/confine.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "common/os/unique_fd.h"

namespace cofferdam::os {
namespace {

// The file rights of each Landlock ABI; a newer kernel is asked for these and no more.
std::uint64_t file_rights(long abi) {
  std::uint64_t rights = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1U) - 1;  // ABI 1: EXECUTE .. MAKE_SYM
  if (abi >= 2) rights |= 1ULL << 13U;                             // REFER
  if (abi >= 3) rights |= 1ULL << 14U;                             // TRUNCATE
  if (abi >= 5) rights |= 1ULL << 15U;                             // IOCTL_DEV
  return rights;
}

Status allow_reading(int ruleset, const std::filesystem::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!fd) {
    if (errno == ENOENT) return {};
    return Error::from_errno(path.string());
  }
  std::error_code ignored;
  const bool tree = std::filesystem::is_directory(path, ignored);
  landlock_path_beneath_attr rule{};
  rule.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE | (tree ? LANDLOCK_ACCESS_FS_READ_DIR : 0);
  rule.parent_fd = fd.get();
  if (::syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0U) != 0) {
    return Error::from_errno("landlock: " + path.string());
  }
  return {};
}

}  // namespace

Status become_user(uid_t uid, gid_t gid) {
  if (uid == 0 || gid == 0) return Error("a service does not stay root: give --uid and --gid");
  if (::setgroups(0, nullptr) != 0) return Error::from_errno("setgroups");
  if (::setresgid(gid, gid, gid) != 0) return Error::from_errno("setresgid");
  if (::setresuid(uid, uid, uid) != 0) return Error::from_errno("setresuid");
  if (::geteuid() != uid || ::getegid() != gid || ::setuid(0) == 0) {
    return Error("the change of ids did not hold");
  }
  return {};
}

Status drop_bounding_set() {
  for (int capability = 0; capability <= 63; ++capability) {
    const int set = ::prctl(PR_CAPBSET_READ, capability, 0, 0, 0);
    if (set < 0) break;  // past the last one that this kernel knows
    if (set == 1 && ::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) {
      return Error::from_errno("PR_CAPBSET_DROP");
    }
  }
  return {};
}

Status drop_capabilities() {
  if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0) {
    return Error::from_errno("PR_CAP_AMBIENT");
  }
  __user_cap_header_struct header{};
  header.version = _LINUX_CAPABILITY_VERSION_3;
  std::array<__user_cap_data_struct, 2> data{};
  if (::syscall(SYS_capset, &header, data.data()) != 0) return Error::from_errno("capset");
  if (::syscall(SYS_capget, &header, data.data()) != 0) return Error::from_errno("capget");
  if ((data[0].permitted | data[1].permitted) != 0) return Error("capabilities are left");
  return {};
}

Status forbid_privileges_and_dumps() {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return Error::from_errno("no_new_privs");
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return Error::from_errno("PR_SET_DUMPABLE");
  const rlimit none{0, 0};
  if (::setrlimit(RLIMIT_CORE, &none) != 0) return Error::from_errno("RLIMIT_CORE");
  return {};
}

Result<LandlockOutcome> restrict_files(const std::vector<std::filesystem::path>& readable) {
  const long abi =
      ::syscall(SYS_landlock_create_ruleset, nullptr, 0U, LANDLOCK_CREATE_RULESET_VERSION);
  if (abi < 0) {
    if (errno == ENOSYS || errno == EOPNOTSUPP) return LandlockOutcome::kNotAvailable;
    return Error::from_errno("landlock");
  }
  landlock_ruleset_attr attributes{};
  attributes.handled_access_fs = file_rights(abi);
  const UniqueFd ruleset(
      static_cast<int>(::syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0U)));
  if (!ruleset) return Error::from_errno("landlock ruleset");
  for (const auto& path : readable) TRY(allow_reading(ruleset.get(), path));
  if (::syscall(SYS_landlock_restrict_self, ruleset.get(), 0U) != 0) {
    return Error::from_errno("landlock restrict");
  }
  return LandlockOutcome::kEnforced;
}

}  // namespace cofferdam::os
