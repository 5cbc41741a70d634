#include "egressproxy/net.h"

#include <algorithm>

namespace cofferdam::egressproxy {

asio::ip::address to_asio(const policy::IpAddress& address) {
  if (address.is_v4()) return asio::ip::address_v4(address.v4_bytes());
  return asio::ip::address_v6(address.v6_bytes());
}

policy::IpAddress from_asio(const asio::ip::address& address) {
  if (address.is_v4()) return policy::IpAddress::from_v4(address.to_v4().to_bytes());
  return policy::IpAddress::from_v6(address.to_v6().to_bytes());
}

policy::IpAddress from_os(const os::SocketAddress& address) {
  if (address.v6) return policy::IpAddress::from_v6(address.address);
  return policy::IpAddress::from_v4(
      {address.address[0], address.address[1], address.address[2], address.address[3]});
}

Deadline::Deadline(const asio::any_io_executor& executor, milliseconds after,
                   std::function<void()> on_expiry)
    : state_(std::make_shared<State>(executor)) {
  state_->on_expiry = std::move(on_expiry);
  state_->due = Clock::now() + after;
  arm(state_);
}

Deadline::~Deadline() {
  state_->on_expiry = nullptr;
  state_->timer.cancel();
}

void Deadline::extend(milliseconds after) {
  state_->due = Clock::now() + after;
  if (state_->due < state_->timer.expiry() && !state_->expired) arm(state_);
}

// The timer is only set again when it fires early, or to fire earlier: to extend costs no system
// call.
void Deadline::arm(const std::shared_ptr<State>& state) {
  state->timer.expires_at(state->due);
  state->timer.async_wait([state](const error_code& error) {
    if (error || !state->on_expiry) return;
    if (Clock::now() < state->due) {
      arm(state);
      return;
    }
    state->expired = true;
    state->on_expiry();
  });
}

Async<void> sleep_for(milliseconds time) {
  asio::steady_timer timer(co_await asio::this_coro::executor, time);
  co_await timer.async_wait(kNoThrow);
}

}  // namespace cofferdam::egressproxy
