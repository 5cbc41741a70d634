#include "orchestrator/init/filter.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "common/os/files.h"
#include "orchestrator/init/protocol.h"

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV  // Linux 5.19
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

namespace cofferdam::init {
namespace {

Result<int> install(int fd, unsigned int flags) {
  TRY_ASSIGN(const std::string bytes, os::read_fd(fd, kMaxSeccompProgram));
  if (bytes.empty() || bytes.size() % sizeof(sock_filter) != 0) return Error("seccomp: odd size");
  std::vector<sock_filter> instructions(bytes.size() / sizeof(sock_filter));
  std::memcpy(instructions.data(), bytes.data(), bytes.size());
  const sock_fprog program{static_cast<unsigned short>(instructions.size()), instructions.data()};
  const long result = ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
  if (result < 0) return Error::from_errno("seccomp");
  return static_cast<int>(result);
}

}  // namespace

Status install_filter(int fd, unsigned int flags) {
  TRY_ASSIGN([[maybe_unused]] const int done, install(fd, flags));
  return {};
}

Result<os::UniqueFd> install_listening_filter(int fd) {
  auto listener =
      install(fd, SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV);
  if (!listener.ok() && listener.error().error_number() == EINVAL) {
    if (::lseek(fd, 0, SEEK_SET) != 0) return Error::from_errno("seccomp program");
    listener = install(fd, SECCOMP_FILTER_FLAG_NEW_LISTENER);
  }
  if (!listener.ok()) return listener.error();
  return os::UniqueFd(*listener);
}

}  // namespace cofferdam::init
