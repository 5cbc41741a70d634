// Server: accepts at the gate and runs one session per connection; ends them all when told to.
#pragma once

#include <list>
#include <memory>
#include <vector>

#include "egressproxy/gate.h"
#include "egressproxy/pipeline.h"
#include "egressproxy/spare_descriptors.h"

namespace cofferdam::egressproxy {

class Server final {
 public:
  // Connections at once where the sandbox's budget does not say. Past it a new one is recorded and
  // told so (503 on the explicit port), or reset.
  static constexpr std::size_t kMaxSessions = 4096;
  // How many of those that are told so may be on their way out at once; further ones are reset.
  static constexpr std::size_t kMaxLeaving = 64;

  Server(asio::io_context& context, Pipeline& pipeline, std::vector<GateSocket> gate)
      : context_(context), pipeline_(pipeline), gate_(std::move(gate)) {}

  void start();
  // Closes the gate and breaks every connection; their records are written while the context runs
  // on.
  void stop();

  std::size_t sessions() const { return sessions_.size(); }
  std::uint64_t accepted() const { return accepted_; }
  std::uint64_t refused() const { return refused_; }

 private:
  struct Session {
    explicit Session(tcp::socket socket) : stream(std::move(socket)) {}
    Stream stream;
    asio::cancellation_signal cancel;
  };
  using Sessions = std::list<std::shared_ptr<Session>>;

  Async<void> accept_all(GateSocket& gate);
  void begin(GateSocket& gate, tcp::socket socket);
  bool is_full() const;
  void turn_away(Role role, tcp::socket socket, milliseconds linger);
  Async<void> serve(std::shared_ptr<Session> session, Role role,
                    std::optional<os::SocketAddress> original);

  asio::io_context& context_;
  Pipeline& pipeline_;
  std::vector<GateSocket> gate_;
  Sessions sessions_;
  std::uint64_t accepted_ = 0;
  std::uint64_t refused_ = 0;
  std::size_t leaving_ = 0;
};

}  // namespace cofferdam::egressproxy
