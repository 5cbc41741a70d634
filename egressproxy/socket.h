// Socket: a connected TCP socket that never blocks, and the waits for it (Readiness).
#pragma once

#include <span>
#include <string_view>

#include "common/os/socket_io.h"
#include "common/os/unique_fd.h"
#include "egressproxy/readiness.h"

namespace cofferdam::egressproxy {

class Socket final {
 public:
  // `fd` is non-blocking.
  Socket(Readiness& readiness, os::UniqueFd fd);
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  asio::any_io_executor executor() const { return readiness_->executor(); }
  bool is_open() const { return fd_.valid(); }
  int fd() const { return fd_.get(); }

  // What is there, or room, now; kWouldBlock and a part are where a wait has its place.
  os::Moved receive(std::span<char> into);
  os::Moved send(std::span<const char> bytes);
  // Looks, and takes nothing.
  os::Moved peek();
  os::Moved peek(std::span<char> into);
  // The same from and into a pipe, which is empty before it is filled.
  os::Moved fill(os::SplicePipe& pipe, std::size_t limit);
  os::Moved drain(os::SplicePipe& pipe);

  // False when it was closed or cancelled meanwhile. One may wait each way.
  asio::awaitable<bool> wait(Way way);
  void wait(Way way, Waiter& waiter);
  // Ends the waits.
  void cancel();

  // An orderly end of our sending side.
  void shutdown_send();
  void close();
  // Closes with a reset, so that the peer does not take it for an orderly end.
  void abort();

 private:
  // `whole`: it was as much as was asked for, and there may be more.
  os::Moved note(Way way, const os::Moved& moved, bool whole);

  Readiness* readiness_;
  os::UniqueFd fd_;
  Readiness::Watch* watch_ = nullptr;  // while it is open
};

}  // namespace cofferdam::egressproxy
