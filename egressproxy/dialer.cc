#include "egressproxy/dialer.h"

#include <algorithm>

namespace cofferdam::egressproxy {
namespace {

// One connection to make.
struct Goal {
  tcp::endpoint peer;
  std::optional<policy::IpAddress> address;  // what is told about it
  std::string request;                       // a CONNECT to send first; empty: none
};

struct Race {
  explicit Race(const asio::any_io_executor& executor) : wake(executor) {}
  asio::steady_timer wake;
  std::vector<std::shared_ptr<tcp::socket>> sockets;
  Dialled result;
  std::size_t running = 0;
  bool over = false;
  bool news = false;  // an attempt ended since the last wait began
};

// kAllowed, or why this attempt came to nothing.
Async<TunnelOutcome> connect(tcp::socket& socket, const Goal& goal) {
  const policy::Reason unreachable =
      goal.request.empty() ? policy::Reason::kConnectFailed : policy::Reason::kUpstreamProxyFailed;
  error_code error;
  socket.open(goal.peer.protocol(), error);
  if (error == asio::error::no_descriptors) {
    co_return TunnelOutcome{policy::Reason::kTooManyConnections, false};
  }
  if (!error) std::tie(error) = co_await socket.async_connect(goal.peer, kNoThrow);
  if (error) co_return TunnelOutcome{unreachable, false};
  const tcp::endpoint peer = socket.remote_endpoint(error);
  if (error) co_return TunnelOutcome{unreachable, false};
  if (peer != goal.peer) co_return TunnelOutcome{policy::Reason::kPeerMismatch, false};
  socket.set_option(tcp::no_delay(true), error);
  if (goal.request.empty()) co_return TunnelOutcome{policy::Reason::kAllowed, false};
  co_return co_await open_tunnel(socket, goal.request);
}

Async<void> attempt(std::shared_ptr<Race> race, Goal goal) {
  auto socket = std::make_shared<tcp::socket>(co_await asio::this_coro::executor);
  race->sockets.push_back(socket);
  const TunnelOutcome outcome = co_await connect(*socket, goal);
  --race->running;
  if (race->over) co_return;
  if (outcome.reason == policy::Reason::kAllowed) {
    race->over = true;
    race->result.address = goal.address;
    race->result.socket = std::move(*socket);
  } else {
    race->result.reason = outcome.reason;
    race->over = outcome.unauthenticated;
    error_code ignored;
    socket->close(ignored);
  }
  race->news = true;
  race->wake.cancel();
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
  tcp::socket socket(co_await asio::this_coro::executor);
  Deadline deadline(socket.get_executor(), total, [&socket] {
    error_code ignored;
    socket.close(ignored);
  });
  const TunnelOutcome outcome = co_await connect(socket, goal);
  if (deadline.expired()) {
    result.timed_out = true;
  } else if (outcome.reason == policy::Reason::kAllowed) {
    result.address = goal.address;
    result.socket = std::move(socket);
  } else {
    result.reason = outcome.reason;
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
  for (const auto& socket : race->sockets) {
    error_code ignored;
    if (socket->is_open()) socket->close(ignored);
  }
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

Async<Dialled> Dialer::dial(std::vector<AuthorizedEndpoint> endpoints) {
  std::vector<Goal> goals;
  for (const AuthorizedEndpoint& endpoint : interleave(std::move(endpoints))) {
    goals.push_back(
        {tcp::endpoint(to_asio(endpoint.address()), endpoint.port()), endpoint.address(), {}});
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
      goals.push_back({tcp::endpoint(to_asio(endpoint.address()), endpoint.port()),
                       target.address(), write_connect(proxy, target)});
    }
  }
  return run(std::move(goals), kProxyStagger, kProxyTotal);
}

}  // namespace cofferdam::egressproxy
