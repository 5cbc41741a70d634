#include "common/os/pipes.h"

#include <fcntl.h>
#include <sys/socket.h>

namespace cofferdam::os {

Result<Pipe> make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return Error::from_errno("pipe2");
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

Result<SocketPair> make_packet_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
    return Error::from_errno("socketpair");
  }
  return SocketPair{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

Result<UniqueFd> duplicate_fd(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!copy) return Error::from_errno("fcntl(F_DUPFD_CLOEXEC)");
  return copy;
}

Status occupy_standard_descriptors() {
  for (int fd = 0; fd < 3; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest free number is `fd`; the direction is the one that nobody uses.
    const int filled = ::open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
    if (filled != fd) return Error::from_errno("/dev/null");
  }
  return {};
}

Status set_cloexec(int fd, bool on) {
  const int flags = ::fcntl(fd, F_GETFD);
  if (flags < 0) return Error::from_errno("fcntl(F_GETFD)");
  const int wanted = on ? (flags | FD_CLOEXEC) : (flags & ~FD_CLOEXEC);
  if (::fcntl(fd, F_SETFD, wanted) != 0) return Error::from_errno("fcntl(F_SETFD)");
  return {};
}

Status set_nonblocking(int fd, bool on) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0) return Error::from_errno("fcntl(F_GETFL)");
  const int wanted = on ? (flags | O_NONBLOCK) : (flags & ~O_NONBLOCK);
  if (::fcntl(fd, F_SETFL, wanted) != 0) return Error::from_errno("fcntl(F_SETFL)");
  return {};
}

}  // namespace cofferdam::os
