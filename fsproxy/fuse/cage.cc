#include "fsproxy/fuse/cage.h"

#include <linux/capability.h>
#include <linux/fs.h>
#include <seccomp.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "common/layer/layer_stack.h"
#include "common/os/confine.h"
#include "common/os/path_grants.h"

namespace cofferdam::fsproxy {
namespace {

// Everything that serving needs; nothing opens a network, a process or a mount.
constexpr std::array kAllowed = {
    // descriptors and data
    "read", "write", "readv", "writev", "pread64", "pwrite64", "lseek", "close", "fcntl", "poll",
    "ppoll", "copy_file_range", "fallocate", "ftruncate", "fsync", "fdatasync", "syncfs", "dup",
    // objects by directory and name; the forms without "at" are SQLite's
    "open", "openat", "openat2", "stat", "lstat", "fstat", "newfstatat", "statx", "getdents64",
    "mkdir", "mkdirat", "mknodat", "unlink", "unlinkat", "rmdir", "symlinkat", "linkat", "rename",
    "renameat", "renameat2", "readlink", "readlinkat", "access", "faccessat", "faccessat2",
    "fchmod", "fchmodat", "fchmodat2", "fchown", "fchownat", "utimensat", "fstatfs", "statfs",
    "fgetxattr", "fsetxattr", "flistxattr", "fremovexattr", "getcwd", "inotify_add_watch",
    "inotify_rm_watch",
    // control socket
    "accept4", "recvfrom", "recvmsg", "sendto", "sendmsg", "shutdown", "setsockopt",
    // the end of the helper for passthrough
    "wait4",
    // memory, threads, time, end
    "mmap", "munmap", "mremap", "mprotect", "madvise", "brk", "futex", "clone", "clone3",
    "set_robust_list", "rseq", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack",
    "sched_yield", "sched_getaffinity", "clock_gettime", "clock_nanosleep", "nanosleep",
    "gettimeofday", "getrandom", "getpid", "gettid", "tgkill", "getuid", "geteuid", "getgid",
    "getegid", "uname", "sysinfo", "prlimit64", "restart_syscall", "exit", "exit_group"};

Status load_filter() {
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
  if (filter == nullptr) return Error("seccomp: no filter");
  Status result;
  const auto check = [&](int code, const char* what) {
    if (code != 0 && result.ok()) {
      result = Error(std::string("seccomp: ") + what + ": " + std::strerror(-code), -code);
    }
  };
  for (const char* name : kAllowed) {
    const int number = seccomp_syscall_resolve_name(name);
    // A call that this architecture or this libseccomp does not know is not made either.
    if (number == __NR_SCMP_ERROR || number < 0) continue;
    check(seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 0), name);
  }
  // Whose connection to the control socket it is.
  struct scmp_arg_cmp peer_only[2] = {};
  peer_only[0] = {1, SCMP_CMP_EQ, SOL_SOCKET, 0};
  peer_only[1] = {2, SCMP_CMP_EQ, SO_PEERCRED, 0};
  check(seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(getsockopt), 2, peer_only),
        "getsockopt");
  struct scmp_arg_cmp clone_only {};
  clone_only.arg = 1;
  clone_only.op = SCMP_CMP_MASKED_EQ;
  clone_only.datum_a = 0xFFFFFFFFU;
  clone_only.datum_b = FICLONE;
  check(seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1, &clone_only), "ioctl");
  check(seccomp_load(filter), "load");
  seccomp_release(filter);
  return result;
}

}  // namespace

Status restrict_files(const FsPolicy& policy) {
  std::vector<os::PathGrant> grants;
  for (const MountPolicy& mount : policy.mounts) {
    if (mount.lower) grants.push_back({*mount.lower, false});
    if (!mount.layer) continue;
    grants.push_back({*mount.layer, true});
    // Frozen layers that belong to the sandbox that this one was forked from.
    TRY_ASSIGN(const auto borrowed, layer::borrowed_layers(*mount.layer));
    for (const std::filesystem::path& path : borrowed) grants.push_back({path.string(), false});
  }
  TRY(os::forbid_privileges_and_dumps());
  TRY_ASSIGN(const bool landlock, os::restrict_paths(grants));
  if (!landlock) spdlog::info("this kernel has no Landlock of ABI 2 or newer");
  return {};
}

Status enter_cage() {
  if (::geteuid() == 0) {
    // SYS_ADMIN: trusted.* marks (xattr(7)). FOWNER, DAC_OVERRIDE, CHOWN: other owners' files.
    TRY(os::keep_capabilities(
        {CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_SYS_ADMIN}));
  } else {
    TRY(os::keep_capabilities({}));
  }
  return load_filter();
}

}  // namespace cofferdam::fsproxy
