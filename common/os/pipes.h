// Pipes, socket pairs and eventfds; everything is CLOEXEC.
#pragma once

#include "common/base/result.h"
#include "common/os/unique_fd.h"

namespace cofferdam::os {

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};
Result<Pipe> make_pipe();

struct SocketPair {
  UniqueFd first;
  UniqueFd second;
};
// AF_UNIX, SOCK_SEQPACKET: one message is one packet.
Result<SocketPair> make_packet_pair();

// A second descriptor of the same open file, 3 or above.
Result<UniqueFd> duplicate_fd(int fd);

// Fills those of descriptors 0, 1 and 2 that are closed, so that nothing opened later gets their
// numbers and what is meant for the user ends in it. Reading and writing them fails as before. The
// first act of a program.
Status occupy_standard_descriptors();

Status set_cloexec(int fd, bool on);
Status set_nonblocking(int fd, bool on);

}  // namespace cofferdam::os
