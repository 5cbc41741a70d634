// Stream: a TCP connection with read-ahead, so that bytes that were looked at are not lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "egressproxy/net.h"

namespace cofferdam::egressproxy {

class Stream final {
 public:
  explicit Stream(tcp::socket socket) : socket_(std::move(socket)) {}

  // Waits for more bytes and appends them to buffered(); end of stream is asio::error::eof, also
  // when asked again (the event loop tells of an end only once).
  Async<error_code> read_more();
  // The same into the caller's buffer, past what is buffered.
  struct Read {
    error_code error;
    std::size_t count = 0;
  };
  Async<Read> read_some(char* buffer, std::size_t size);
  // All of it, or an error.
  Async<error_code> write(std::string_view bytes);

  std::string_view buffered() const { return std::string_view(buffer_).substr(start_); }
  void consume(std::size_t count);

  tcp::socket& socket() { return socket_; }
  bool is_open() const { return socket_.is_open(); }
  // Ends what is being read or written, which reports operation_aborted. Nothing when it is closed.
  void cancel();
  // An orderly end of our sending side.
  void shutdown_send();
  void close();
  // Closes with a reset, so that the peer does not take it for an orderly end.
  void abort();

  std::uint64_t bytes_read() const { return bytes_read_; }
  std::uint64_t bytes_written() const { return bytes_written_; }

 private:
  tcp::socket socket_;
  std::string buffer_;
  std::size_t start_ = 0;
  bool ended_ = false;
  std::uint64_t bytes_read_ = 0;
  std::uint64_t bytes_written_ = 0;
};

}  // namespace cofferdam::egressproxy
