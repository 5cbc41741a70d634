// Attempts on the kernel's surface: system calls that no workload needs.
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "orchestrator/probe/probe.h"

namespace probe {
namespace {

int judge(long result, const char* call) {
  return result >= 0 ? escaped(std::string(call) + " succeeded") : blocked_by_errno(call);
}

int mount_tmpfs(const Arguments&) {
  return judge(::mount("none", "/tmp", "tmpfs", 0, nullptr), "mount");
}
int remount_root(const Arguments&) {
  return judge(::mount(nullptr, "/", nullptr, MS_REMOUNT | MS_BIND, nullptr), "remount");
}
int unmount(const Arguments& arguments) {
  return judge(::umount2(arguments.at(0).c_str(), MNT_DETACH), "umount2");
}
int new_mount_api(const Arguments&) {
  return judge(::syscall(SYS_fsopen, "tmpfs", 0), "fsopen");
}
int open_tree(const Arguments&) {
  return judge(::syscall(SYS_open_tree, AT_FDCWD, "/", 1 /* OPEN_TREE_CLONE */), "open_tree");
}
int new_root(const Arguments&) {
  return judge(::chroot("/tmp"), "chroot");
}
int user_namespace(const Arguments&) {
  return judge(::unshare(CLONE_NEWUSER), "unshare");
}
int net_namespace(const Arguments&) {
  return judge(::unshare(CLONE_NEWNET), "unshare");
}
int mount_namespace(const Arguments&) {
  return judge(::unshare(CLONE_NEWNS), "unshare");
}
int clone_user_namespace(const Arguments&) {
  const long child =
      ::syscall(SYS_clone, CLONE_NEWUSER | 17 /* SIGCHLD */, nullptr, nullptr, nullptr, nullptr);
  if (child == 0) ::_exit(0);
  return judge(child, "clone");
}
int join_namespace(const Arguments&) {
  const int fd = ::open("/proc/1/ns/net", O_RDONLY);
  if (fd < 0) return blocked_by_errno("open /proc/1/ns/net");
  return judge(::setns(fd, 0), "setns");
}
int io_uring(const Arguments&) {
  char parameters[120] = {};
  return judge(::syscall(SYS_io_uring_setup, 4, parameters), "io_uring_setup");
}
int keyring(const Arguments&) {
  return judge(::syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 1), "keyctl");
}
int add_key(const Arguments&) {
  return judge(::syscall(SYS_add_key, "user", "probe", "x", 1, KEY_SPEC_SESSION_KEYRING),
               "add_key");
}
int load_bpf(const Arguments&) {
  bpf_attr attribute{};
  attribute.map_type = BPF_MAP_TYPE_ARRAY;
  attribute.key_size = 4;
  attribute.value_size = 4;
  attribute.max_entries = 1;
  return judge(::syscall(SYS_bpf, BPF_MAP_CREATE, &attribute, sizeof attribute), "bpf");
}
int perf(const Arguments&) {
  perf_event_attr attribute{};
  attribute.size = sizeof attribute;
  attribute.type = PERF_TYPE_SOFTWARE;
  attribute.exclude_kernel = 1;
  return judge(::syscall(SYS_perf_event_open, &attribute, 0, -1, -1, 0), "perf_event_open");
}
int user_faults(const Arguments&) {
  return judge(::syscall(SYS_userfaultfd, 1 /* UFFD_USER_MODE_ONLY */), "userfaultfd");
}
int load_module(const Arguments&) {
  return judge(::syscall(SYS_init_module, nullptr, 0, ""), "init_module");
}
int open_handle(const Arguments&) {
  alignas(file_handle) char space[sizeof(file_handle) + 128] = {};
  auto* handle = reinterpret_cast<file_handle*>(space);
  handle->handle_bytes = 8;
  handle->handle_type = 1;
  const int root = ::open("/", O_RDONLY | O_DIRECTORY);
  return judge(::open_by_handle_at(root, handle, O_RDONLY), "open_by_handle_at");
}
int push_input(const Arguments&) {
  const char byte = 'x';
  return judge(::ioctl(0, TIOCSTI, &byte), "TIOCSTI");
}
int kernel_log(const Arguments&) {
  return judge(::syscall(SYS_syslog, 3, nullptr, 0), "syslog");
}
int set_clock(const Arguments&) {
  const timespec then{0, 0};
  return judge(::clock_settime(CLOCK_REALTIME, &then), "clock_settime");
}
int set_host_name(const Arguments&) {
  return judge(::sethostname("x", 1), "sethostname");
}
int reboot_call(const Arguments&) {
  // LINUX_REBOOT_CMD_CAD_OFF: harmless where it is allowed.
  return judge(::syscall(SYS_reboot, 0xfee1dead, 672274793, 0, nullptr), "reboot");
}
int become_root(const Arguments&) {
  return judge(::setuid(::getuid() == 0 ? 1 : 0), "setuid");
}
int set_groups(const Arguments&) {
  return judge(::syscall(SYS_setgroups, 0, nullptr), "setgroups");
}

// x32 and 32-bit calls evade filters that look only at numbers.
int foreign_abi(const Arguments&) {
#if defined(__x86_64__)
  long result = 0;
  // getpid by int 0x80: number 20 of the 32-bit table.
  __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory");
  if (result > 0) return escaped("a 32-bit system call was served");
  return blocked("32-bit system call refused");
#else
  return unusable("only on x86-64");
#endif
}

}  // namespace

const Attempt kKernelAttempts[] = {{"mount", mount_tmpfs},
                                   {"remount", remount_root},
                                   {"umount", unmount},
                                   {"fsopen", new_mount_api},
                                   {"open-tree", open_tree},
                                   {"chroot", new_root},
                                   {"userns", user_namespace},
                                   {"netns", net_namespace},
                                   {"mountns", mount_namespace},
                                   {"clone-userns", clone_user_namespace},
                                   {"setns", join_namespace},
                                   {"io-uring", io_uring},
                                   {"keyctl", keyring},
                                   {"add-key", add_key},
                                   {"bpf", load_bpf},
                                   {"perf", perf},
                                   {"userfaultfd", user_faults},
                                   {"init-module", load_module},
                                   {"open-by-handle", open_handle},
                                   {"tiocsti", push_input},
                                   {"syslog", kernel_log},
                                   {"clock", set_clock},
                                   {"hostname", set_host_name},
                                   {"reboot", reboot_call},
                                   {"setuid", become_root},
                                   {"setgroups", set_groups},
                                   {"foreign-abi", foreign_abi},
                                   {nullptr, nullptr}};

}  // namespace probe
