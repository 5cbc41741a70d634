// The roles of cofferdam-init. Each returns the process's exit status.
#pragma once

namespace cofferdam::init {

int run_prepare();
// `make_socket`: process 1 of a container, which gets no descriptor from its engine; the socket
// pair is made here and the supervisor takes its end by pidfd_getfd (descriptor kSocketFd + 1).
int run_pid1(bool make_socket);
// Waits for a termination signal and reaps.
int run_pause();

}  // namespace cofferdam::init
