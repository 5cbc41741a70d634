// Readiness: which sockets can be read and written, for all connections of one event loop.
//
// Asio registers anew for each wait and asks the kernel once more for each; a tunnel waits half a
// dozen times. Here a socket is registered once, edge-triggered, and what the kernel has told is
// kept until a call finds the socket empty or full. One thread.
#pragma once

#include <array>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "common/os/epoll.h"
#include "egressproxy/net.h"

namespace cofferdam::egressproxy {

enum class Way : std::uint8_t { kRead, kWrite };

// Who waits for a socket. For each wait one of the two is called, once, and never from inside of
// what it calls itself to wait or to end the wait; it lives until then.
class Waiter {
 public:
  virtual ~Waiter() = default;
  // `ready` is false when the socket was closed or the wait was cancelled.
  virtual void on_ready(bool ready) = 0;
  // The loop is being destroyed. What is destroyed here must not be waiting elsewhere.
  virtual void abandon() = 0;
};

// One per io_context (asio::use_service).
class Readiness final : public asio::execution_context::service {
 public:
  using key_type = Readiness;
  // Asio looks for it. NOLINTNEXTLINE(readability-identifier-naming)
  static const asio::execution_context::id id;

  explicit Readiness(asio::execution_context& context);
  static Readiness& of(asio::io_context& context) { return asio::use_service<Readiness>(context); }
  static Readiness& of(const asio::any_io_executor& executor) {
    return of(static_cast<asio::io_context&>(asio::query(executor, asio::execution::context)));
  }

  asio::any_io_executor executor() const { return executor_; }

  // What is known of one descriptor.
  struct Watch {
    int fd = -1;
    bool registered = false;
    bool tells_writes = false;
    // By Way.
    std::array<bool, 2> ready{};  // false until told
    std::array<bool, 2> ended{};  // there is nothing to wait for any more
    std::array<Waiter*, 2> waiters{};
    bool urgent = false;     // urgent bytes came: a part that was read tells nothing
    bool forgotten = false;  // closed while events are handed out
    Watch* next = nullptr;   // of the free, or of the forgotten
  };
  // Not registered before the first wait.
  Watch* watch(int fd);
  // Before the descriptor is closed. Whoever waits is told.
  void forget(Watch* watch);

  // One may wait each way. Told soon, but never in this call, when it is ready already, and that
  // it is not when there is no `watch` (any more).
  void wait(Watch* watch, Way way, Waiter& waiter);
  void cancel(Watch& watch);
  // The same for one, if it waits there (still).
  void cancel(Watch& watch, const Waiter& waiter);
  // A call found it empty or full.
  static void note_exhausted(Watch& watch, Way way);
  // A call moved less than it was asked to.
  static void note_part(Watch& watch, Way way);

 private:
  static constexpr std::size_t kAtOnce = 128;
  struct Due {
    Waiter* waiter;
    bool ready;
  };

  void shutdown() override;
  bool register_for(Watch& watch, Way way);
  // Waits for the kernel's word while anybody waits for it.
  void arm();
  void hand_out();
  void tell(Watch& watch, Way way);
  void end_wait(Waiter*& waiter);
  void tell_later(Waiter& waiter, bool ready);
  void tell_due();
  void recycle();

  asio::any_io_executor executor_;
  std::optional<os::Epoll> epoll_;
  std::optional<asio::posix::stream_descriptor> descriptor_;  // a duplicate of epoll_'s
  std::deque<Watch> all_;
  Watch* free_ = nullptr;
  Watch* forgotten_ = nullptr;  // until the events at hand are handed out
  std::vector<Due> due_;
  std::size_t waiting_ = 0;
  bool armed_ = false;
  bool handing_out_ = false;
  bool posted_ = false;
};

}  // namespace cofferdam::egressproxy
