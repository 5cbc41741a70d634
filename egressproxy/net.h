// The one place for Asio: aliases, conversions, a deadline. Everything runs on one thread and one
// io_context; there are no locks.
//
// GCC 12 destroys some temporaries twice that live across a suspension: in a coroutine, what is
// passed to something that is awaited is a named object, and no range-for runs over a braced list.
// And a coroutine without a local variable that awaits inside a condition (`if (co_await one)
// co_await other;`) gets a wrong frame, up to an illegal instruction: name the result there.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/udp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>  // before Asio: GCC 12

#include "common/os/sockets.h"
#include "common/policy/address.h"

namespace cofferdam::egressproxy {

namespace asio = boost::asio;
using asio::ip::tcp;
using asio::ip::udp;
using boost::system::error_code;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

template <typename T>
using Async = asio::awaitable<T>;

// co_await operation(…, kNoThrow) gives a tuple that begins with the error_code.
inline constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);

asio::ip::address to_asio(const policy::IpAddress& address);
// An IPv4-mapped address becomes the IPv4 address.
policy::IpAddress from_asio(const asio::ip::address& address);
os::SocketAddress to_os(const policy::IpAddress& address, std::uint16_t port);
policy::IpAddress from_os(const os::SocketAddress& address);

class DeadlineWheel;

// Calls `on_expiry` once when the time is over, unless it was destroyed or extended before.
// `on_expiry` must not outlive what it refers to: it is dropped by the destructor.
class Deadline final {
 public:
  Deadline(const asio::any_io_executor& executor, milliseconds after,
           std::function<void()> on_expiry);
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

  // Counts anew from now; it may also end sooner than before. Nothing once it has expired.
  void extend(milliseconds after);
  bool expired() const { return expired_; }

 private:
  friend class DeadlineWheel;
  DeadlineWheel& wheel_;
  Deadline** link_ = nullptr;  // what points here, in a list of the wheel
  Deadline* next_ = nullptr;
  Clock::time_point due_;
  std::function<void()> on_expiry_;
  bool expired_ = false;
};

Async<void> sleep_for(milliseconds time);

}  // namespace cofferdam::egressproxy
