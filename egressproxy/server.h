// Server: accepts at the gate and runs one session per connection; ends them all when told to.
#pragma once

#include <algorithm>
#include <list>
#include <memory>
#include <vector>

#include "egressproxy/gate.h"
#include "egressproxy/pipeline.h"
#include "egressproxy/spare_descriptors.h"

namespace cofferdam::egressproxy {

class Server final {
 public:
  // Connections at once, and of them those that have not said yet what they want; the sandbox's
  // budget may say less. Past either a new one is recorded and told so (503 on the explicit port),
  // or reset.
  static constexpr std::size_t kMaxSessions = 16384;
  static constexpr std::size_t kMaxHalfOpen = 4096;
  // How many of those that are told so may be on their way out at once; further ones are reset.
  static constexpr std::size_t kMaxLeaving = 64;
  // As many sessions as `descriptors` has room for, two each, with some left for everything else:
  // the control socket and the resolver work when the gate is full.
  static std::size_t sessions_for(std::uint64_t descriptors);

  Server(asio::io_context& context, Pipeline& pipeline, std::vector<GateSocket> gate,
         std::size_t max_sessions)
      : context_(context),
        pipeline_(pipeline),
        gate_(std::move(gate)),
        max_sessions_(max_sessions),
        max_half_open_(std::min(max_sessions / 2, kMaxHalfOpen)) {}

  void start();
  // Closes the gate and breaks every connection; their records are written while the context runs
  // on.
  void stop();

  std::size_t sessions() const { return sessions_.size(); }
  // Connections that are not brought to an end yet, those that are turned away among them.
  std::size_t in_progress() const { return sessions_.size() + leaving_; }
  std::uint64_t accepted() const { return accepted_; }
  std::uint64_t refused() const { return refused_; }

 private:
  struct Session {
    explicit Session(Socket socket) : stream(std::move(socket)) {}
    Stream stream;
    asio::cancellation_signal cancel;
  };
  using Sessions = std::list<std::shared_ptr<Session>>;

  Async<void> accept_all(GateSocket& gate);
  void begin(GateSocket& gate, Socket socket);
  bool is_full() const;
  void turn_away(Role role, Socket socket, milliseconds linger);
  // Those that wait now, kAcceptedAtOnce at most; the errno that it ended with.
  int accept_some(GateSocket& gate);
  Async<void> serve(std::shared_ptr<Session> session, Role role,
                    std::optional<os::SocketAddress> original);

  asio::io_context& context_;
  Pipeline& pipeline_;
  std::vector<GateSocket> gate_;
  std::size_t max_sessions_;
  std::size_t max_half_open_;
  // Shared with the places: what the loop still holds at its end may outlive this.
  std::shared_ptr<std::size_t> half_open_ = std::make_shared<std::size_t>(0);
  Sessions sessions_;
  std::uint64_t accepted_ = 0;
  std::uint64_t refused_ = 0;
  std::size_t leaving_ = 0;
};

}  // namespace cofferdam::egressproxy
