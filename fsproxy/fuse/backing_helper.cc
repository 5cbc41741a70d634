#include "fsproxy/fuse/backing_helper.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "common/os/fd_passing.h"
#include "common/os/files.h"
#include "common/os/path_grants.h"
#include "fsproxy/fuse/reply.h"

namespace cofferdam::fsproxy {
namespace {

// linux/fuse.h of 6.9; the headers of the build may be older.
struct BackingMap {
  std::int32_t fd;
  std::uint32_t flags;
  std::uint64_t padding;
};
constexpr unsigned long kBackingOpen = _IOW(229, 1, BackingMap);
constexpr unsigned long kBackingClose = _IOW(229, 2, std::uint32_t);

enum class Act : std::uint32_t { kAdd, kRemove };
struct Request {
  Act act = Act::kAdd;
  std::uint32_t mount = 0;
  std::uint32_t count = 0;  // of ids to remove
  std::array<std::int32_t, BackingHelper::kMostAtOnce> ids{};
};
struct Answer {
  std::int32_t value = 0;  // the id, or minus an errno
};

Status load_filter() {
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
  if (filter == nullptr) return Error("seccomp: no filter");
  int code = 0;
  for (const int number :
       {SCMP_SYS(recvmsg), SCMP_SYS(sendto), SCMP_SYS(close), SCMP_SYS(fcntl), SCMP_SYS(exit_group),
        SCMP_SYS(rt_sigreturn), SCMP_SYS(restart_syscall)}) {
    if (code == 0) code = seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 0);
  }
  for (const unsigned long request : {kBackingOpen, kBackingClose}) {
    if (code == 0) {
      code = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1,
                              SCMP_A1(SCMP_CMP_MASKED_EQ, 0xFFFFFFFFU, request));
    }
  }
  if (code == 0) code = seccomp_load(filter);
  seccomp_release(filter);
  if (code != 0) return Error(std::string("seccomp: ") + std::strerror(-code), -code);
  return {};
}

std::int32_t register_file(int fuse, int fd) {
  // A descriptor that only names a file would be opened with rights that its giver may not have.
  const int flags = ::fcntl(fd, F_GETFL);
  if (fd < 0 || flags < 0 || (flags & O_PATH) != 0) return -EBADF;
  BackingMap map{fd, 0, 0};
  const int id = ::ioctl(fuse, kBackingOpen, &map);
  return id > 0 ? id : id == 0 ? -EIO : -errno;
}

// One request after the other until the service is gone.
[[noreturn]] void serve(int channel, const int* fuse, std::size_t count) {
  for (;;) {
    Request request;
    struct iovec part = {&request, sizeof request};
    alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct msghdr message {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = ::recvmsg(channel, &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got != static_cast<ssize_t>(sizeof request)) ::_exit(got == 0 ? 0 : 1);
    int fd = -1;
    const struct cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header != nullptr && header->cmsg_type == SCM_RIGHTS)
      std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    Answer answer;
    if (request.mount >= count) {
      answer.value = -EINVAL;
    } else if (request.act == Act::kAdd) {
      answer.value = register_file(fuse[request.mount], fd);
    } else {
      for (std::size_t i = 0; i < std::min<std::size_t>(request.count, request.ids.size()); ++i) {
        auto id = static_cast<std::uint32_t>(request.ids[i]);
        (void)::ioctl(fuse[request.mount], kBackingClose, &id);
      }
    }
    if (fd >= 0) (void)::close(fd);
    if (request.act == Act::kAdd && ::send(channel, &answer, sizeof answer, MSG_NOSIGNAL) < 0)
      ::_exit(1);
  }
}

// The child's life. Descriptors: 0 to 2 stay (stderr tells), the channel and the mounts follow,
// nothing else is held.
[[noreturn]] void live(int channel, const std::vector<int>& mounts) {
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
  constexpr int kFirst = 3;
  constexpr std::size_t kMost = 256;
  std::array<int, kMost> fuse{};
  // First out of the way of the final numbers.
  const int away = 512;
  int next = away;
  if (mounts.size() > kMost || ::dup2(channel, next++) < 0) ::_exit(1);
  for (const int mount : mounts) {
    if (::dup2(mount, next++) < 0) ::_exit(1);
  }
  if (::syscall(SYS_close_range, kFirst, away - 1, 0) != 0 ||
      ::syscall(SYS_close_range, next, ~0U, 0) != 0) {
    ::_exit(1);
  }
  for (std::size_t i = 0; i < mounts.size(); ++i) fuse[i] = away + 1 + static_cast<int>(i);
  // The kernel writes with these credentials. FSETID: set-id bits are cleared by the mount's rules,
  // for the process that really writes, and not by who registered the file.
  if (!os::keep_capabilities({CAP_FSETID, CAP_SYS_ADMIN}).ok() || !load_filter().ok()) ::_exit(1);
  const Answer caged;
  if (::send(away, &caged, sizeof caged, MSG_NOSIGNAL) < 0) ::_exit(1);
  serve(away, fuse.data(), mounts.size());
}

}  // namespace

Status BackingHelper::possible() {
#if FUSE_VERSION < FUSE_MAKE_VERSION(3, 17)
  return Error("this build's libfuse is older than 3.17 (tools/get_libfuse)");
#endif
  struct utsname kernel {};
  int major = 0;
  int minor = 0;
  if (::uname(&kernel) != 0 || std::sscanf(kernel.release, "%d.%d", &major, &minor) != 2 ||
      major < 6 || (major == 6 && minor < 9)) {
    return Error("needs Linux 6.9 or newer");
  }
  if (::geteuid() != 0) return Error("needs root");
  TRY_ASSIGN(const std::string map, os::read_file("/proc/self/uid_map"));
  std::uint64_t inside = 1;
  std::uint64_t outside = 1;
  std::uint64_t count = 0;
  if (std::sscanf(map.c_str(), "%lu %lu %lu", &inside, &outside, &count) != 3 || inside != 0 ||
      outside != 0 || count != 4294967295U) {
    return Error("needs the first user namespace");
  }
  struct __user_cap_header_struct header {};
  header.version = _LINUX_CAPABILITY_VERSION_3;
  struct __user_cap_data_struct data[2] = {};
  if (::syscall(SYS_capget, &header, data) != 0) return Error::from_errno("capget");
  if ((data[0].effective & (1U << CAP_SYS_ADMIN)) == 0) return Error("needs CAP_SYS_ADMIN");
  return {};
}

Result<std::unique_ptr<BackingHelper>> BackingHelper::start(const std::vector<int>& mounts) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return Error::from_errno("socketpair");
  os::UniqueFd own(ends[0]);
  os::UniqueFd theirs(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return Error::from_errno("fork");
  if (child == 0) live(theirs.get(), mounts);
  theirs.reset();
  auto helper = std::unique_ptr<BackingHelper>(new BackingHelper(std::move(own), child));
  Answer caged;
  ssize_t got = 0;
  do {
    got = ::recv(helper->channel_.get(), &caged, sizeof caged, 0);
  } while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(sizeof caged))
    return Error("the helper for passthrough has no cage");
  return helper;
}

Result<std::int32_t> BackingHelper::add(std::uint32_t mount, int fd) {
  Request request;
  request.mount = mount;
  const std::string_view bytes(reinterpret_cast<const char*>(&request), sizeof request);
  const std::lock_guard lock(mutex_);
  TRY(os::send_packet(channel_.get(), bytes, {fd}));
  Answer answer;
  ssize_t got = 0;
  do {
    got = ::recv(channel_.get(), &answer, sizeof answer, 0);
  } while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(sizeof answer))
    return Error("the helper for passthrough is gone", EPIPE);
  if (answer.value <= 0) return Error::from_errno("backing file", -answer.value);
  return answer.value;
}

void BackingHelper::remove(std::uint32_t mount, const std::vector<std::int32_t>& backing_ids) {
  Request request;
  request.act = Act::kRemove;
  request.mount = mount;
  request.count = static_cast<std::uint32_t>(std::min(backing_ids.size(), request.ids.size()));
  std::copy_n(backing_ids.begin(), request.count, request.ids.begin());
  const std::string_view bytes(reinterpret_cast<const char*>(&request), sizeof request);
  const std::lock_guard lock(mutex_);
  // With a helper that is gone there is nothing to release.
  (void)os::send_packet(channel_.get(), bytes).ok();
}

BackingHelper::~BackingHelper() {
  channel_.reset();
  // It ends at the end of its channel.
  while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace cofferdam::fsproxy
