#include "common/os/background.h"

#include <fcntl.h>
#include <unistd.h>

#include "common/os/files.h"
#include "common/os/pipes.h"

namespace cofferdam::os {

Result<Background> fork_to_background() {
  constexpr std::size_t kMostReport = 64U << 10U;
  TRY_ASSIGN(Pipe pipe, make_pipe());
  const pid_t pid = ::fork();
  if (pid < 0) return Error::from_errno("fork");
  Background side;
  if (pid > 0) {
    pipe.write.reset();
    TRY_ASSIGN(side.report, read_fd(pipe.read.get(), kMostReport));
    return side;
  }
  pipe.read.reset();
  side.in_child = true;
  side.to_starter = std::move(pipe.write);
  if (::setsid() < 0) return Error::from_errno("setsid");
  return side;
}

Status replace_standard_descriptors(int fd) {
  TRY_ASSIGN(const UniqueFd null, open_file("/dev/null", O_RDWR));
  const int sources[] = {null.get(), fd, fd};
  for (int number = 0; number < 3; ++number) {
    if (::dup2(sources[number], number) < 0) return Error::from_errno("dup2");
  }
  return {};
}

}  // namespace cofferdam::os
