#include "egressproxy/net.h"

#include "egressproxy/deadline_wheel.h"

namespace cofferdam::egressproxy {

asio::ip::address to_asio(const policy::IpAddress& address) {
  if (address.is_v4()) return asio::ip::address_v4(address.v4_bytes());
  return asio::ip::address_v6(address.v6_bytes());
}

policy::IpAddress from_asio(const asio::ip::address& address) {
  if (address.is_v4()) return policy::IpAddress::from_v4(address.to_v4().to_bytes());
  return policy::IpAddress::from_v6(address.to_v6().to_bytes());
}

os::SocketAddress to_os(const policy::IpAddress& address, std::uint16_t port) {
  os::SocketAddress result;
  result.v6 = !address.is_v4();
  result.port = port;
  if (address.is_v4()) {
    const auto bytes = address.v4_bytes();
    std::copy(bytes.begin(), bytes.end(), result.address.begin());
  } else {
    result.address = address.v6_bytes();
  }
  return result;
}

policy::IpAddress from_os(const os::SocketAddress& address) {
  if (address.v6) return policy::IpAddress::from_v6(address.address);
  return policy::IpAddress::from_v4(
      {address.address[0], address.address[1], address.address[2], address.address[3]});
}

Deadline::Deadline(const asio::any_io_executor& executor, milliseconds after,
                   std::function<void()> on_expiry)
    : wheel_(asio::use_service<DeadlineWheel>(
          static_cast<asio::io_context&>(asio::query(executor, asio::execution::context)))),
      due_(Clock::now() + after),
      on_expiry_(std::move(on_expiry)) {
  wheel_.add(*this);
}

Deadline::~Deadline() {
  wheel_.remove(*this);
}

void Deadline::extend(milliseconds after) {
  if (expired_) return;
  const Clock::time_point due = Clock::now() + after;
  const bool put_off = due >= due_;
  if (!put_off) wheel_.remove(*this);
  due_ = due;
  if (!put_off) wheel_.add(*this);  // else it is found too early, and moved then
}

Async<void> sleep_for(milliseconds time) {
  asio::steady_timer timer(co_await asio::this_coro::executor, time);
  co_await timer.async_wait(kNoThrow);
}

}  // namespace cofferdam::egressproxy
