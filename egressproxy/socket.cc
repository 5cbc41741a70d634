#include "egressproxy/socket.h"

#include "common/os/stream_socket.h"

namespace cofferdam::egressproxy {
namespace {

// A coroutine that waits: owns itself until it is called.
template <typename Handler>
class Suspended final : public Waiter {
 public:
  explicit Suspended(Handler handler) : handler_(std::move(handler)) {}
  // What ends the coroutine ends the wait.
  void obey(Readiness& readiness, Readiness::Watch* watch) {
    auto slot = asio::get_associated_cancellation_slot(handler_);
    if (watch == nullptr || !slot.is_connected()) return;
    slot.assign([this, &readiness, watch](asio::cancellation_type /*type*/) {
      readiness.cancel(*watch, *this);
    });
  }
  void on_ready(bool ready) override {
    auto slot = asio::get_associated_cancellation_slot(handler_);
    if (slot.is_connected()) slot.clear();
    Handler handler = std::move(handler_);
    delete this;
    handler(ready);
  }
  void abandon() override { delete this; }

 private:
  Handler handler_;
};

}  // namespace

Socket::Socket(Readiness& readiness, os::UniqueFd fd) : readiness_(&readiness), fd_(std::move(fd)) {
  if (fd_) watch_ = readiness.watch(fd_.get());
}

Socket::Socket(Socket&& other) noexcept
    : readiness_(other.readiness_),
      fd_(std::move(other.fd_)),
      watch_(std::exchange(other.watch_, nullptr)) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this == &other) return *this;
  close();
  readiness_ = other.readiness_;
  fd_ = std::move(other.fd_);
  watch_ = std::exchange(other.watch_, nullptr);
  return *this;
}

os::Moved Socket::note(Way way, const os::Moved& moved, bool whole) {
  if (watch_ == nullptr) return moved;
  if (moved.state == os::Moving::kWouldBlock) {
    Readiness::note_exhausted(*watch_, way);
  } else if (!whole) {
    Readiness::note_part(*watch_, way);
  }
  return moved;
}

os::Moved Socket::receive(std::span<char> into) {
  const os::Moved moved = os::receive_now(fd_.get(), into);
  return note(Way::kRead, moved, moved.count == into.size());
}

os::Moved Socket::send(std::span<const char> bytes) {
  const os::Moved moved = os::send_now(fd_.get(), bytes);
  return note(Way::kWrite, moved, moved.count == bytes.size());
}

os::Moved Socket::peek() {
  char byte = 0;
  return peek(std::span(&byte, 1));
}

os::Moved Socket::peek(std::span<char> into) {
  return note(Way::kRead, os::peek_now(fd_.get(), into), true);
}

os::Moved Socket::fill(os::SplicePipe& pipe, std::size_t limit) {
  return note(Way::kRead, pipe.fill(fd_.get(), limit), true);
}

os::Moved Socket::drain(os::SplicePipe& pipe) {
  return note(Way::kWrite, pipe.drain(fd_.get()), true);
}

asio::awaitable<bool> Socket::wait(Way way) {
  const auto initiate = [this, way](auto handler) {
    // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): its own, see Suspended
    auto* suspended = new Suspended<decltype(handler)>(std::move(handler));
    suspended->obey(*readiness_, watch_);
    wait(way, *suspended);
  };
  return asio::async_initiate<const asio::use_awaitable_t<>&, void(bool)>(initiate,
                                                                          asio::use_awaitable);
}

void Socket::wait(Way way, Waiter& waiter) {
  readiness_->wait(watch_, way, waiter);
}

void Socket::cancel() {
  if (watch_ != nullptr) readiness_->cancel(*watch_);
}

void Socket::shutdown_send() {
  if (fd_) os::shutdown_sending(fd_.get());
}

void Socket::close() {
  if (watch_ != nullptr) readiness_->forget(std::exchange(watch_, nullptr));
  fd_.reset();
}

void Socket::abort() {
  if (watch_ != nullptr) readiness_->forget(std::exchange(watch_, nullptr));
  if (fd_) os::close_with_reset(std::move(fd_));
}

}  // namespace cofferdam::egressproxy
