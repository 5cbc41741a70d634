#include "egressproxy/stream.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "common/os/stream_socket.h"
#include "egressproxy/connections.h"
#include "egressproxy/relay.h"

namespace cofferdam::egressproxy {
namespace {

constexpr std::size_t kReadSize = 16384;
constexpr std::size_t kKeptBuffer = 256;
constexpr milliseconds kFlushTime{1000};
constexpr milliseconds kFlushPause{5};

// What a call fails with when the budget is spent.
error_code budget_spent() {
  return {EDQUOT, boost::system::system_category()};
}

// What is read goes through here, so that a connection that waits holds no buffer. Never held
// across a wait.
thread_local std::array<char, kReadSize> scratch;

error_code failure(const os::Moved& moved) {
  return {moved.error_number, boost::system::system_category()};
}

}  // namespace

// Who has just connected has most often said something already.
Stream::Stream(Socket socket) : socket_(std::move(socket)), more_expected_(true) {}

Stream::Stream(Socket socket, std::unique_ptr<Connection> connection)
    : socket_(std::move(socket)), connection_(std::move(connection)), more_expected_(false) {
  if (connection_) connection_->upstream_ = this;
}

Stream::~Stream() = default;

Async<error_code> Stream::read_more() {
  if (start_ > 0) {
    buffer_.erase(0, start_);
    start_ = 0;
  }
  if (ended_) co_return error_code(asio::error::eof);
  while (true) {
    std::size_t size = kReadSize;
    if (connection_ && (cut_ || connection_->meter().left(Direction::kDown) < size)) {
      const error_code error = co_await limit_read(size);
      if (error) co_return error;
    }
    os::Moved moved{os::Moving::kWouldBlock};
    if (more_expected_) {
      moved = socket_.receive(std::span(scratch).first(size));
    }
    switch (moved.state) {
      case os::Moving::kMoved:
        more_expected_ = moved.count == size;
        if (connection_) moved.count = charge_read(moved.count);
        bytes_read_ += moved.count;
        buffer_.append(scratch.data(), moved.count);
        co_return error_code();
      case os::Moving::kEnd:
        ended_ = true;
        co_return error_code(asio::error::eof);
      case os::Moving::kFailed:
        co_return failure(moved);
      case os::Moving::kWouldBlock:
        break;
    }
    const bool ready = co_await socket_.wait(Way::kRead);
    if (!ready) co_return error_code(asio::error::operation_aborted);
    more_expected_ = true;
  }
}

// Others may have used the same budget while this one waited.
std::size_t Stream::charge_read(std::size_t count) {
  Meter& meter = connection_->meter();
  const auto granted =
      static_cast<std::size_t>(std::min<std::uint64_t>(count, meter.left(Direction::kDown)));
  meter.charge(Direction::kDown, granted);
  cut_ = cut_ || granted < count;
  return granted;
}

Async<error_code> Stream::limit_read(std::size_t& size) {
  while (!cut_) {
    const std::uint64_t left = connection_->meter().left(Direction::kDown);
    if (left > 0) {
      size = static_cast<std::size_t>(std::min<std::uint64_t>(size, left));
      co_return error_code();
    }
    const bool ready = co_await socket_.wait(Way::kRead);
    if (!ready) co_return error_code(asio::error::operation_aborted);
    const os::Moved seen = socket_.peek();
    if (seen.state == os::Moving::kWouldBlock) continue;
    if (seen.state == os::Moving::kFailed) co_return failure(seen);
    if (seen.state == os::Moving::kEnd) {
      ended_ = true;
      co_return error_code(asio::error::eof);
    }
    cut_ = true;
  }
  if (Stream* downstream = connection_->downstream_) co_await downstream->flush();
  connection_->end_spent();
  co_return budget_spent();
}

Async<error_code> Stream::write(std::string_view bytes) {
  bool spent = false;
  if (connection_) {
    Meter& meter = connection_->meter();
    const std::uint64_t left = meter.left(Direction::kUp);
    spent = left < bytes.size();
    if (spent) bytes = bytes.substr(0, static_cast<std::size_t>(left));
    meter.charge(Direction::kUp, bytes.size());
  }
  while (!bytes.empty()) {
    const os::Moved sent = socket_.send(bytes);
    if (sent.state == os::Moving::kFailed) co_return failure(sent);
    bytes.remove_prefix(sent.count);
    bytes_written_ += sent.count;
    if (bytes.empty()) break;
    const bool ready = co_await socket_.wait(Way::kWrite);
    if (!ready) co_return error_code(asio::error::operation_aborted);
  }
  if (!spent) co_return error_code();
  co_await flush();
  connection_->end_spent();
  co_return budget_spent();
}

void Stream::hand_over(std::unique_ptr<Handover> handover) {
  handover_ = std::move(handover);
}

std::unique_ptr<Handover> Stream::take_handover() {
  return std::move(handover_);
}

std::uint64_t Stream::may_read() const {
  return connection_ ? connection_->meter().left(Direction::kDown) : Account::kUnlimited;
}

std::uint64_t Stream::may_write() const {
  return connection_ ? connection_->meter().left(Direction::kUp) : Account::kUnlimited;
}

void Stream::note_read(std::size_t count) {
  if (connection_) connection_->meter().charge(Direction::kDown, count);
  bytes_read_ += count;
}

void Stream::note_written(std::size_t count) {
  if (connection_) connection_->meter().charge(Direction::kUp, count);
  bytes_written_ += count;
}

void Stream::consume(std::size_t count) {
  start_ += count;
  if (start_ < buffer_.size()) return;
  start_ = 0;
  // What is kept must be worth it, or thousands of connections that wait keep it.
  if (buffer_.capacity() > kKeptBuffer) {
    buffer_ = {};
  } else {
    buffer_.clear();
  }
}

Async<void> Stream::flush() {
  const Clock::time_point end = Clock::now() + kFlushTime;
  while (socket_.is_open() && Clock::now() < end) {
    if (os::unsent_bytes(socket_.fd()) == 0) co_return;
    co_await sleep_for(kFlushPause);
  }
}

}  // namespace cofferdam::egressproxy
