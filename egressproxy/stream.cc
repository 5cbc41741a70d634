#include "egressproxy/stream.h"

namespace cofferdam::egressproxy {
namespace {
constexpr std::size_t kReadSize = 16384;
}

Async<error_code> Stream::read_more() {
  if (start_ > 0) {
    buffer_.erase(0, start_);
    start_ = 0;
  }
  const std::size_t old_size = buffer_.size();
  buffer_.resize(old_size + kReadSize);
  const Read read = co_await read_some(buffer_.data() + old_size, kReadSize);
  buffer_.resize(old_size + read.count);
  co_return read.error;
}

Async<Stream::Read> Stream::read_some(char* buffer, std::size_t size) {
  Read read;
  if (ended_) {
    read.error = asio::error::eof;
    co_return read;
  }
  std::tie(read.error, read.count) =
      co_await socket_.async_read_some(asio::buffer(buffer, size), kNoThrow);
  if (read.error == asio::error::eof) ended_ = true;
  bytes_read_ += read.count;
  co_return read;
}

Async<error_code> Stream::write(std::string_view bytes) {
  const auto [error, count] =
      co_await asio::async_write(socket_, asio::buffer(bytes.data(), bytes.size()), kNoThrow);
  bytes_written_ += count;
  co_return error;
}

void Stream::consume(std::size_t count) {
  start_ += count;
  if (start_ < buffer_.size()) return;
  buffer_.clear();
  start_ = 0;
}

void Stream::cancel() {
  error_code ignored;
  socket_.cancel(ignored);
}

void Stream::shutdown_send() {
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
}

void Stream::close() {
  error_code ignored;
  socket_.close(ignored);
}

void Stream::abort() {
  error_code ignored;
  socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  socket_.close(ignored);
}

}  // namespace cofferdam::egressproxy
