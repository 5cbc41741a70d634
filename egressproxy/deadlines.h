// Deadlines: how long egressproxy waits for whom. One place, so that a test can make a wait short;
// nothing can make one longer.
#pragma once

#include <string_view>

#include "common/base/result.h"
#include "egressproxy/net.h"

namespace cofferdam::egressproxy {

struct Deadlines {
  // A tunnel or a redirected connection says its first byte.
  milliseconds first_byte = seconds(60);
  // From the first byte to a whole ClientHello, or to the end of a request line.
  milliseconds hello = seconds(5);
  // A connection that is refused anyway is only read to tell HTTP clients why.
  milliseconds refused = milliseconds(1500);
  // From the first byte of an HTTP head to its end; a whole SOCKS handshake. Total, not per read.
  milliseconds head = seconds(10);
  // Between two requests.
  milliseconds keep_alive = seconds(90);
  // The server's response head.
  milliseconds response = std::chrono::minutes(5);
  // A server that has begun its response says nothing more.
  milliseconds body = std::chrono::minutes(5);
  // What kMinBodyBytes of a request's body may take, time waited for the workload only.
  milliseconds upload = seconds(60);
  // A peer takes nothing of what is written to it.
  milliseconds write = std::chrono::minutes(2);
  // Neither direction of a tunnel moves.
  milliseconds tunnel = std::chrono::minutes(30);
};

// A request's body is at least this fast over each Deadlines::upload (100 bytes a second).
inline constexpr std::uint64_t kMinBodyBytes = 6000;

// "NAME=MILLISECONDS" with a name of Deadlines: shortens that one; to lengthen it is an error.
Status shorten_deadline(Deadlines& deadlines, std::string_view text);

}  // namespace cofferdam::egressproxy
