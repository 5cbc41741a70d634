// Stream: a TCP connection with read-ahead, so that bytes that were looked at are not lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "egressproxy/net.h"
#include "egressproxy/socket.h"

namespace cofferdam::egressproxy {

class Connection;
struct Handover;

class Stream final {
 public:
  explicit Stream(Socket socket);
  // To a server: what is read and written is charged to `connection`. Where a budget ends, the
  // bytes up to it are passed, then both sides are reset and the call fails.
  Stream(Socket socket, std::unique_ptr<Connection> connection);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Null for the workload's side.
  Connection* connection() const { return connection_.get(); }

  // Waits for more bytes and appends them to buffered(); end of stream is asio::error::eof, also
  // when asked again (the event loop tells of an end only once).
  Async<error_code> read_more();
  // All of it, or an error.
  Async<error_code> write(std::string_view bytes);

  // What this connection goes on as when everything about it is decided: the server carries it out
  // (carry() of relay.h) once the session has ended, so that a tunnel keeps nothing of its set-up.
  void hand_over(std::unique_ptr<Handover> handover);
  std::unique_ptr<Handover> take_handover();

  // For who moves bytes past read_more and write (the relay): how many the budget still lets
  // through, at least as much as anybody moves where there is none; and that they were moved.
  std::uint64_t may_read() const;
  std::uint64_t may_write() const;
  void note_read(std::size_t count);
  void note_written(std::size_t count);

  std::string_view buffered() const { return std::string_view(buffer_).substr(start_); }
  void consume(std::size_t count);

  // A place among the half-open connections (Server), held until it is clear what the workload
  // wants.
  void hold(std::shared_ptr<void> place) { place_ = std::move(place); }
  void settle() { place_.reset(); }

  Socket& socket() { return socket_; }
  asio::any_io_executor executor() const { return socket_.executor(); }
  bool is_open() const { return socket_.is_open(); }
  // Ends what is being read or written, which reports operation_aborted. Nothing when it is closed.
  void cancel() { socket_.cancel(); }
  // An orderly end of our sending side.
  void shutdown_send() { socket_.shutdown_send(); }
  void close() { socket_.close(); }
  // Waits until the peer has what was written, for a moment at most: before abort(), which drops
  // what is still here.
  Async<void> flush();
  // Closes with a reset, so that the peer does not take it for an orderly end.
  void abort() { socket_.abort(); }

  std::uint64_t bytes_read() const { return bytes_read_; }
  std::uint64_t bytes_written() const { return bytes_written_; }

 private:
  // Narrows a read to what the budget has left. Where that is nothing: waits for what comes, which
  // may be an orderly end, and cuts the connection when it is not.
  Async<error_code> limit_read(std::size_t& size);
  // What a read of `count` bytes may pass on.
  std::size_t charge_read(std::size_t count);

  Socket socket_;
  std::unique_ptr<Connection> connection_;
  std::shared_ptr<void> place_;
  std::unique_ptr<Handover> handover_;
  std::string buffer_;
  std::size_t start_ = 0;
  bool ended_ = false;
  bool more_expected_;  // a read is worth trying: the last one did not empty the socket
  bool cut_ = false;    // bytes were read that the budget no longer had
  std::uint64_t bytes_read_ = 0;
  std::uint64_t bytes_written_ = 0;
};

}  // namespace cofferdam::egressproxy
