// Moving bytes between sockets without ever waiting: what an event loop does between two waits.
// Every socket that is given here is non-blocking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/os/pipes.h"

namespace cofferdam::os {

enum class Moving : std::uint8_t {
  kMoved,       // `count` bytes, at least one
  kWouldBlock,  // nothing now
  kEnd,         // the peer has ended its side
  kFailed,      // the connection is broken
};
struct Moved {
  Moving state = Moving::kFailed;
  std::size_t count = 0;
  int error_number = 0;  // of kFailed
};

Moved receive_now(int socket, std::span<char> into);
// Looks, and takes nothing.
Moved peek_now(int socket, std::span<char> into);
Moved send_now(int socket, std::span<const char> bytes);

// A pipe that splice(2) moves pages through, and what is in it now.
class SplicePipe final {
 public:
  // Its size is a wish: past pipe-user-pages-soft (pipe(7)) the kernel gives less. An error when
  // there is no pipe at all.
  static Result<SplicePipe> open(std::size_t wanted_size);

  // From a socket into the pipe, `limit` bytes at most; kWouldBlock when the socket has nothing or
  // the pipe is full.
  Moved fill(int socket, std::size_t limit);
  Moved drain(int socket);
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  explicit SplicePipe(Pipe pipe) : pipe_(std::move(pipe)) {}
  Pipe pipe_;
  std::size_t size_ = 0;
};

}  // namespace cofferdam::os
