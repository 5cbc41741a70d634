// Installing seccomp programs that the supervisor compiled.
#pragma once

#include "common/base/result.h"
#include "common/os/unique_fd.h"

namespace cofferdam::init {

// Reads a program (struct sock_filter[]) from `fd` and installs it for this process and all its
// children to come. no_new_privs must be set.
Status install_filter(int fd, unsigned int flags);
// The same, with a listener for SECCOMP_RET_USER_NOTIF (seccomp_unotify(2)).
Result<os::UniqueFd> install_listening_filter(int fd);

}  // namespace cofferdam::init
