#include "egressproxy/dialer.h"

#include <algorithm>
#include <cerrno>

#include "common/os/stream_socket.h"

namespace cofferdam::egressproxy {
namespace {

// One connection to make.
struct Goal {
  os::SocketAddress peer;
  FirstWord first = FirstWord::kEither;
  std::optional<policy::IpAddress> address;  // what is told about it
  std::string request;                       // a CONNECT to send first; empty: none
};

struct Race {
  explicit Race(const asio::any_io_executor& executor) : wake(executor) {}
  asio::steady_timer wake;
  std::vector<std::shared_ptr<Socket>> sockets;
  Dialled result;
  std::size_t running = 0;
  bool over = false;
  bool news = false;  // an attempt ended since the last wait began
};

// A socket on its way to the goal, or none and why.
struct Attempt {
  std::optional<Socket> socket;
  policy::Reason reason = policy::Reason::kConnectFailed;
};

policy::Reason unreachable(const Goal& goal) {
  return goal.request.empty() ? policy::Reason::kConnectFailed
                              : policy::Reason::kUpstreamProxyFailed;
}

Attempt begin(Readiness& readiness, const Goal& goal) {
  os::Opened opened = os::open_stream(goal.peer.v6);
  if (opened.error_number == EMFILE || opened.error_number == ENFILE) {
    return {std::nullopt, policy::Reason::kTooManyConnections};
  }
  if (opened.fd && goal.first == FirstWord::kOurs) os::send_with_handshake(opened.fd.get());
  if (!opened.fd || os::connect_now(opened.fd.get(), goal.peer) != 0) {
    return {std::nullopt, unreachable(goal)};
  }
  return {Socket(readiness, std::move(opened.fd)), policy::Reason::kAllowed};
}

// kAllowed, or why this attempt came to nothing.
Async<TunnelOutcome> finish(Socket& socket, const Goal& goal) {
  // A near peer has answered by now.
  std::optional<os::SocketAddress> peer = os::peer_address(socket.fd());
  if (!peer) {
    const bool told = co_await socket.wait(Way::kWrite);
    if (told) peer = os::peer_address(socket.fd());
  }
  if (!peer) co_return TunnelOutcome{unreachable(goal), false};
  if (*peer != goal.peer) co_return TunnelOutcome{policy::Reason::kPeerMismatch, false};
  if (goal.request.empty()) co_return TunnelOutcome{policy::Reason::kAllowed, false};
  co_return co_await open_tunnel(socket, goal.request);
}

// Takes the place of a descriptor that failed.
void conclude_attempt(Race& race, const TunnelOutcome& outcome) {
  --race.running;
  if (race.over) return;
  if (outcome.reason == policy::Reason::kAllowed) {
    race.over = true;
  } else {
    race.result.reason = outcome.reason;
    race.over = outcome.unauthenticated;
  }
  race.news = true;
  race.wake.cancel();
}

Async<void> attempt(std::shared_ptr<Race> race, Goal goal) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  Attempt begun = begin(Readiness::of(executor), goal);
  if (!begun.socket) {
    conclude_attempt(*race, {begun.reason, false});
    co_return;
  }
  const auto socket = std::make_shared<Socket>(std::move(*begun.socket));
  race->sockets.push_back(socket);
  const TunnelOutcome outcome = co_await finish(*socket, goal);
  const bool won = !race->over && outcome.reason == policy::Reason::kAllowed;
  conclude_attempt(*race, outcome);
  if (won) {
    race->result.address = goal.address;
    race->result.socket.emplace(std::move(*socket));
  } else {
    socket->close();
  }
}

// Until an attempt ends, or the time has come.
Async<void> wait(Race& race, Clock::time_point until) {
  if (!race.news) {
    race.wake.expires_at(until);
    co_await race.wake.async_wait(kNoThrow);
  }
  race.news = false;
}

// One goal needs no race.
Async<Dialled> run_alone(Goal goal, milliseconds total) {
  Dialled result;
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  Attempt begun = begin(Readiness::of(executor), goal);
  result.reason = begun.reason;
  if (!begun.socket) co_return result;
  Socket& socket = *begun.socket;
  Deadline deadline(executor, total, [&socket] { socket.close(); });
  const TunnelOutcome outcome = co_await finish(socket, goal);
  result.reason = outcome.reason;
  result.timed_out = deadline.expired();
  if (!result.timed_out && outcome.reason == policy::Reason::kAllowed) {
    result.address = goal.address;
    result.socket.emplace(std::move(socket));
  }
  co_return result;
}

Async<Dialled> run(std::vector<Goal> goals, milliseconds stagger, milliseconds total) {
  if (goals.size() == 1) {
    Dialled alone = co_await run_alone(std::move(goals.front()), total);
    co_return alone;
  }
  const auto executor = co_await asio::this_coro::executor;
  const auto race = std::make_shared<Race>(executor);
  const Clock::time_point end = Clock::now() + total;
  for (Goal& goal : goals) {
    if (race->over || Clock::now() >= end) break;
    ++race->running;
    asio::co_spawn(executor, attempt(race, std::move(goal)), asio::detached);
    const Clock::time_point next = std::min(end, Clock::now() + stagger);
    co_await wait(*race, next);
  }
  while (!race->over && race->running > 0 && Clock::now() < end) co_await wait(*race, end);
  race->result.timed_out = !race->over && race->running > 0;
  race->over = true;
  for (const auto& socket : race->sockets) socket->close();
  co_return std::move(race->result);
}

}  // namespace

std::vector<AuthorizedEndpoint> interleave(std::vector<AuthorizedEndpoint> endpoints) {
  if (endpoints.empty()) return endpoints;
  const bool first_v4 = endpoints.front().address().is_v4();
  std::vector<AuthorizedEndpoint> first;
  std::vector<AuthorizedEndpoint> second;
  for (const auto& endpoint : endpoints) {
    (endpoint.address().is_v4() == first_v4 ? first : second).push_back(endpoint);
  }
  std::vector<AuthorizedEndpoint> result;
  for (std::size_t i = 0; i < std::max(first.size(), second.size()); ++i) {
    if (i < first.size()) result.push_back(first[i]);
    if (i < second.size()) result.push_back(second[i]);
  }
  return result;
}

Async<Dialled> Dialer::dial(std::vector<AuthorizedEndpoint> endpoints, FirstWord first) {
  std::vector<Goal> goals;
  for (const AuthorizedEndpoint& endpoint : interleave(std::move(endpoints))) {
    goals.push_back({to_os(endpoint.address(), endpoint.port()), first, endpoint.address(), {}});
  }
  return run(std::move(goals), kStagger, kTotal);
}

Async<Dialled> Dialer::dial_through(const policy::UpstreamProxy& proxy,
                                    std::vector<ProxyEndpoint> endpoints,
                                    std::vector<ProxyTarget> targets) {
  std::vector<Goal> goals;
  if (targets.size() > kMaxProxyTargets) {
    targets.erase(targets.begin() + kMaxProxyTargets, targets.end());
  }
  for (const ProxyTarget& target : targets) {
    for (const ProxyEndpoint& endpoint : endpoints) {
      goals.push_back({to_os(endpoint.address(), endpoint.port()), FirstWord::kOurs,
                       target.address(), write_connect(proxy, target)});
    }
  }
  return run(std::move(goals), kProxyStagger, kProxyTotal);
}

}  // namespace cofferdam::egressproxy
