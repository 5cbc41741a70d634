#include "common/os/host_probes.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "common/os/files.h"
#include "common/os/nft_probe.h"
#include "common/os/pipes.h"
#include "common/os/unique_fd.h"

namespace cofferdam::os {
namespace {

constexpr std::array<const char*, 4> kNames = {"user_namespaces", "namespaces", "fuse",
                                               "nftables_nat"};

// What the child tells: one of these per probe, in order.
struct Report {
  int error_number;
  char step[60];
};

bool write_text(const char* path, const char* text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const auto length = static_cast<ssize_t>(std::strlen(text));
  const bool written = ::write(fd, text, std::strlen(text)) == length;
  const int error = errno;
  ::close(fd);
  errno = error;
  return written;
}

class Child {
 public:
  explicit Child(int pipe) : pipe_(pipe) {}

  [[noreturn]] void run() {
    probe_user_namespace();
    probe_namespaces();
    probe_fuse();
    tell(load_redirect_probe(), "redirect rule in a nat chain");
    ::_exit(0);
  }

 private:
  void tell(int error, const char* step) {
    Report report{};
    report.error_number = error;
    std::snprintf(report.step, sizeof report.step, "%s", step);
    if (::write(pipe_, &report, sizeof report) != sizeof report) ::_exit(1);
  }

  // Everything later depends on this one, so the rest of the reports repeat it.
  [[noreturn]] void give_up(int error, const char* step, std::size_t done) {
    for (std::size_t i = done; i < kNames.size(); ++i) tell(error, step);
    ::_exit(0);
  }

  void probe_user_namespace() {
    char map[32];
    char group_map[32];
    std::snprintf(map, sizeof map, "0 %u 1", ::geteuid());
    std::snprintf(group_map, sizeof group_map, "0 %u 1", ::getegid());
    if (::unshare(CLONE_NEWUSER) != 0) give_up(errno, "unshare(CLONE_NEWUSER)", 0);
    if (!write_text("/proc/self/setgroups", "deny")) give_up(errno, "setgroups", 0);
    if (!write_text("/proc/self/uid_map", map)) give_up(errno, "uid_map", 0);
    if (!write_text("/proc/self/gid_map", group_map)) give_up(errno, "gid_map", 0);
    tell(0, "");
  }

  void probe_namespaces() {
    if (::unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS) != 0) {
      give_up(errno, "unshare of mount, net, pid, ipc, uts", 1);
    }
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=64k") != 0) {
      give_up(errno, "mount in the new namespace", 1);
    }
    tell(0, "");
  }

  void probe_fuse() {
    const int device = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (device < 0) return tell(errno, "open /dev/fuse");
    char options[96];
    std::snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    if (::mkdir("/tmp/mount", 0700) != 0 ||
        ::mount("cofferdam", "/tmp/mount", "fuse", MS_NOSUID | MS_NODEV, options) != 0) {
      tell(errno, "mount of fuse");
    } else {
      tell(0, "");
    }
    ::close(device);
  }

  int pipe_;
};

}  // namespace

Result<std::vector<ProbeResult>> probe_sandbox_kernel() {
  TRY_ASSIGN(Pipe pipe, make_pipe());
  const pid_t pid = ::fork();
  if (pid < 0) return Error::from_errno("fork");
  if (pid == 0) Child(pipe.write.get()).run();
  pipe.write.reset();
  auto bytes = read_fd(pipe.read.get(), 65536);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!bytes.ok()) return bytes.error();
  if (bytes->size() != kNames.size() * sizeof(Report)) {
    return Error("the probe of this kernel ended early");
  }
  std::vector<ProbeResult> results;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    Report report{};
    std::memcpy(&report, bytes->data() + i * sizeof report, sizeof report);
    results.push_back({kNames[i], report.error_number, report.step});
  }
  return results;
}

int landlock_abi() {
#ifdef SYS_landlock_create_ruleset
  constexpr std::uint32_t kVersion = 1U;  // LANDLOCK_CREATE_RULESET_VERSION
  const long abi = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, kVersion);
  return abi < 0 ? 0 : static_cast<int>(abi);
#else
  return 0;
#endif
}

bool has_seccomp_notify() {
  const std::uint32_t action = SECCOMP_RET_USER_NOTIF;
  return ::syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

std::string kernel_release() {
  utsname name{};
  return ::uname(&name) == 0 ? name.release : "";
}

Result<bool> is_on_fuse(const std::string& path) {
  constexpr long kFuseSuperMagic = 0x65735546;
  struct statfs fs {};
  if (::statfs(path.c_str(), &fs) != 0) return Error::from_errno("statfs " + path);
  return static_cast<long>(fs.f_type) == kFuseSuperMagic;
}

}  // namespace cofferdam::os
