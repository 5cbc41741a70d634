#include "egressproxy/server.h"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <exception>

#include "common/log/diagnostics.h"
#include "common/os/stream_socket.h"
#include "egressproxy/dns_server.h"
#include "egressproxy/dns_tcp.h"
#include "egressproxy/refusal.h"
#include "egressproxy/relay.h"
#include "egressproxy/session.h"

namespace cofferdam::egressproxy {
namespace {

// Then others have their turn.
constexpr int kAcceptedAtOnce = 32;
constexpr milliseconds kAcceptPause{50};  // after EMFILE and the like
constexpr milliseconds kLinger{2000};
constexpr milliseconds kShortLinger{100};  // with a descriptor that others wait for
constexpr std::size_t kMaxDrained = 1U << 20U;

// What a coroutine threw, if anything: only cancellation and exhausted memory can get here.
void report(const std::exception_ptr& thrown) {
  if (!thrown) return;
  try {
    std::rethrow_exception(thrown);
  } catch (const boost::system::system_error& error) {
    if (error.code() == asio::error::operation_aborted) return;
    spdlog::warn("session: {}", error.what());
  } catch (const std::exception& error) {
    spdlog::warn("session: {}", error.what());
  }
}

}  // namespace

void Server::start() {
  for (GateSocket& gate : gate_) {
    if (gate.acceptor) asio::co_spawn(context_, accept_all(gate), asio::detached);
    if (gate.datagrams) {
      asio::co_spawn(context_, serve_dns_udp(pipeline_, *gate.datagrams), asio::detached);
    }
  }
}

void Server::stop() {
  for (GateSocket& gate : gate_) {
    error_code ignored;
    if (gate.acceptor) gate.acceptor->close(ignored);
    if (gate.datagrams) gate.datagrams->close(ignored);
  }
  const Sessions ending = sessions_;
  for (const auto& session : ending) {
    session->stream.abort();
    session->cancel.emit(asio::cancellation_type::terminal);
  }
  // A tunnel whose workload has ended its side waits for its server alone.
  pipeline_.connections().for_each([](Connection& connection) { connection.drop(); });
}

int Server::accept_some(GateSocket& gate) {
  Readiness& readiness = Readiness::of(context_);
  for (int count = 0; count < kAcceptedAtOnce; ++count) {
    os::Opened opened = os::accept_now(gate.acceptor->native_handle());
    if (!opened.fd) return opened.error_number;
    begin(gate, Socket(readiness, std::move(opened.fd)));
  }
  return 0;
}

Async<void> Server::accept_all(GateSocket& gate) {
  SpareDescriptors spare(gate.acceptor->native_handle(), 1);
  error_code ignored;
  gate.acceptor->native_non_blocking(true, ignored);
  while (gate.acceptor->is_open()) {
    const auto [closed] = co_await gate.acceptor->async_wait(tcp::acceptor::wait_read, kNoThrow);
    if (closed) co_return;
    // First what is kept in reserve: a place that has become free is not for the next session.
    spare.refill();
    const int error = spare.complete() ? accept_some(gate) : EMFILE;
    if ((error == EMFILE || error == ENFILE) && spare.give_up_one()) {
      // One that waits is told, instead of waiting for it knows not what.
      os::Opened waiting = os::accept_now(gate.acceptor->native_handle());
      if (waiting.fd) {
        ++accepted_;
        turn_away(gate.role, Socket(Readiness::of(context_), std::move(waiting.fd)), kShortLinger);
      }
    }
    // Who has given up before it was accepted is nobody's error (accept(2)).
    if (error == 0 || error == EAGAIN || error == ECONNABORTED || error == EINTR) continue;
    co_await sleep_for(kAcceptPause);
    spare.refill();
  }
}

std::size_t Server::sessions_for(std::uint64_t descriptors) {
  constexpr std::uint64_t kKept = 64 + kMaxLeaving;
  // Of so few nothing can be set aside: the spare descriptors of the accept loops have to do.
  constexpr std::uint64_t kFew = 4 * kKept;
  const std::uint64_t room = descriptors < kFew ? kMaxSessions : (descriptors - kKept) / 2;
  return static_cast<std::size_t>(std::min<std::uint64_t>(room, kMaxSessions));
}

bool Server::is_full() const {
  const auto budget = pipeline_.budgets().sandbox().budget.connections;
  const std::size_t most = std::min<std::size_t>(budget.value_or(max_sessions_), max_sessions_);
  return sessions_.size() >= most || *half_open_ >= max_half_open_;
}

namespace {

// The request is not waited for: what it was does not matter. What still comes is read away for a
// moment, so that a reset does not overtake the answer.
Async<void> say_full(std::shared_ptr<Stream> stream, std::string text, milliseconds linger) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  Deadline deadline(executor, linger, [stream] { stream->close(); });
  error_code error = co_await stream->write(text);
  stream->shutdown_send();
  std::size_t drained = 0;
  while (!error && drained < kMaxDrained) {
    error = co_await stream->read_more();
    drained += stream->buffered().size();
    stream->consume(stream->buffered().size());
  }
  stream->close();
}

}  // namespace

void Server::turn_away(Role role, Socket socket, milliseconds linger) {
  ++refused_;
  EgressRecord record;
  record.via = role == Role::kTransparent ? "transparent" : "";
  record.decision = {policy::Verdict::kDeny, policy::Reason::kTooManyConnections, {}};
  pipeline_.recorder().record(record);
  const auto stream = std::make_shared<Stream>(std::move(socket));
  if (role != Role::kExplicit || leaving_ >= kMaxLeaving) {
    stream->abort();
    return;
  }
  Refusal refusal;
  refusal.status = 503;
  refusal.decision = record.decision;
  ++leaving_;
  asio::co_spawn(context_, say_full(stream, write_refusal(refusal, false), linger),
                 [this](const std::exception_ptr& thrown) {
                   report(thrown);
                   --leaving_;
                 });
}

void Server::begin(GateSocket& gate, Socket socket) {
  ++accepted_;
  // A connection that nothing steered has no original destination (ENOENT).
  std::optional<os::SocketAddress> original;
  if (gate.role == Role::kTransparent) {
    const auto found = os::original_destination(socket.fd(), gate.v6);
    if (found) original = *found;
  }
  if (is_full()) {
    turn_away(gate.role, std::move(socket), kLinger);
    return;
  }
  const auto session = std::make_shared<Session>(std::move(socket));
  ++*half_open_;
  session->stream.hold(std::shared_ptr<void>(nullptr, [count = half_open_](void*) { --*count; }));
  const auto place = sessions_.insert(sessions_.end(), session);
  asio::co_spawn(context_, serve(session, gate.role, original),
                 asio::bind_cancellation_slot(session->cancel.slot(),
                                              [this, place](const std::exception_ptr& thrown) {
                                                report(thrown);
                                                sessions_.erase(place);
                                              }));
}

Async<void> Server::serve(std::shared_ptr<Session> session, Role role,
                          std::optional<os::SocketAddress> original) {
  // Operations that stop() cancels report it as an error, so that records are still written.
  co_await asio::this_coro::throw_if_cancelled(false);
  switch (role) {
    case Role::kDns:
      co_await serve_dns_tcp(pipeline_, session->stream);
      break;
    case Role::kExplicit:
      co_await serve_explicit(pipeline_, session->stream);
      break;
    case Role::kTransparent:
      co_await serve_transparent(pipeline_, session->stream, original);
      break;
  }
  auto handover = session->stream.take_handover();
  if (handover) co_await carry(pipeline_.recorder(), session->stream, std::move(handover));
  session->stream.close();
}

}  // namespace cofferdam::egressproxy
