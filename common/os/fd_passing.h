// Messages with descriptors over an AF_UNIX SOCK_SEQPACKET socket (unix(7), SCM_RIGHTS).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/os/unique_fd.h"

namespace cofferdam::os {

// The largest packet that either side sends or takes, bytes.
inline constexpr std::size_t kMaxPacket = 128 * 1024;
// The most descriptors in one packet (SCM_MAX_FD is 253).
inline constexpr std::size_t kMaxPacketFds = 64;

struct Packet {
  std::string bytes;
  std::vector<UniqueFd> fds;  // CLOEXEC
  bool end_of_stream = false;
};

// Sends one packet; blocks unless the socket is non-blocking. SIGPIPE is never raised.
Status send_packet(int socket, std::string_view bytes, const std::vector<int>& fds = {});

// Receives one packet. A truncated packet or truncated descriptors are an error; end_of_stream is
// set when the peer is gone. EAGAIN comes back as an error with that errno.
Result<Packet> receive_packet(int socket);

}  // namespace cofferdam::os
