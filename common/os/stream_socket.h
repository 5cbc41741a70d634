// TCP sockets that never block: what is done with one call each.
#pragma once

#include <cstdint>

#include "common/os/sockets.h"
#include "common/os/unique_fd.h"

namespace cofferdam::os {

// A descriptor, or the errno that there is none for (EAGAIN: nobody waits).
struct Opened {
  UniqueFd fd;
  int error_number = 0;
};
// The next connection of a listening, non-blocking socket (accept4(2)).
Opened accept_now(int listener);
// Not connected yet; small writes are not held back (TCP_NODELAY, tcp(7)).
Opened open_stream(bool v6);

// For who speaks first on a connection that is not made yet: the handshake's last segment waits for
// the first bytes, 40 ms at most (TCP_QUICKACK, tcp(7)), and the peer is woken once.
void send_with_handshake(int fd);
// Begins to connect: 0 when it is done or on its way, else the errno.
int connect_now(int fd, const SocketAddress& peer);

void shutdown_sending(int fd);
// What is still to be sent is dropped, and the peer gets a reset.
void close_with_reset(UniqueFd fd);
// Bytes that the peer has not acknowledged yet (tcp(7), SIOCOUTQ); 0 when that cannot be told.
std::uint64_t unsent_bytes(int fd);

}  // namespace cofferdam::os
