// Sockets that a test has connected, as the service has them.
#pragma once

#include <memory>

#include "egressproxy/stream.h"

namespace cofferdam::egressproxy {

inline Socket socket_of(tcp::socket socket) {
  Readiness& readiness = Readiness::of(socket.get_executor());
  socket.native_non_blocking(true);
  return {readiness, os::UniqueFd(socket.release())};
}

inline std::unique_ptr<Stream> stream_of(tcp::socket socket) {
  return std::make_unique<Stream>(socket_of(std::move(socket)));
}

}  // namespace cofferdam::egressproxy
