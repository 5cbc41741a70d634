#include "common/os/seccomp_listener.h"

#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <string>

namespace cofferdam::os {

Result<SeccompListener> SeccompListener::adopt(UniqueFd fd) {
  const std::string link = "/proc/self/fd/" + std::to_string(fd.get());
  char target[64] = {};
  if (::readlink(link.c_str(), target, sizeof target - 1) < 0) return Error::from_errno(link);
  if (std::string(target) != "anon_inode:seccomp notify") {
    return Error("not a seccomp listener");
  }
  return SeccompListener(std::move(fd));
}

Result<std::optional<SyscallNotice>> SeccompListener::receive() const {
  seccomp_notif notice{};  // must be zeroed
  if (::ioctl(fd_.get(), SECCOMP_IOCTL_NOTIF_RECV, &notice) != 0) {
    if (errno == ENOENT || errno == EINTR) return std::optional<SyscallNotice>();
    return Error::from_errno("SECCOMP_IOCTL_NOTIF_RECV");
  }
  return std::optional<SyscallNotice>(
      SyscallNotice{notice.id, notice.pid, notice.data.nr, notice.data.arch});
}

Status SeccompListener::refuse(const SyscallNotice& notice, int error_number) const {
  seccomp_notif_resp answer{};
  answer.id = notice.id;
  answer.error = -error_number;
  if (::ioctl(fd_.get(), SECCOMP_IOCTL_NOTIF_SEND, &answer) != 0 && errno != ENOENT) {
    return Error::from_errno("SECCOMP_IOCTL_NOTIF_SEND");
  }
  return {};
}

}  // namespace cofferdam::os
