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

Status set_cloexec(int fd, bool on);
Status set_nonblocking(int fd, bool on);

}  // namespace cofferdam::os
