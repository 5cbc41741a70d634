#include "egressproxy/dialer.h"

#include <algorithm>

namespace cofferdam::egressproxy {
namespace {

struct Race {
  explicit Race(const asio::any_io_executor& executor) : wake(executor) {}
  asio::steady_timer wake;
  std::vector<std::shared_ptr<tcp::socket>> sockets;
  Dialled result;
  std::size_t running = 0;
  bool over = false;
  bool news = false;  // an attempt ended since the last wait began
};

Async<void> attempt(std::shared_ptr<Race> race, AuthorizedEndpoint endpoint) {
  const tcp::endpoint target(to_asio(endpoint.address()), endpoint.port());
  auto socket = std::make_shared<tcp::socket>(co_await asio::this_coro::executor);
  race->sockets.push_back(socket);
  ++race->running;
  error_code error;
  socket->open(target.protocol(), error);
  if (!error) std::tie(error) = co_await socket->async_connect(target, kNoThrow);
  --race->running;
  if (race->over) co_return;
  if (!error) {
    const tcp::endpoint peer = socket->remote_endpoint(error);
    if (!error && peer == target) {
      socket->set_option(tcp::no_delay(true), error);
      race->over = true;
      race->result.address = endpoint.address();
      race->result.socket = std::move(*socket);
    } else if (!error) {
      race->result.reason = policy::Reason::kPeerMismatch;
    }
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
  const auto executor = co_await asio::this_coro::executor;
  const auto race = std::make_shared<Race>(executor);
  const Clock::time_point end = Clock::now() + kTotal;
  for (const AuthorizedEndpoint& endpoint : interleave(std::move(endpoints))) {
    if (race->over || Clock::now() >= end) break;
    asio::co_spawn(executor, attempt(race, endpoint), asio::detached);
    co_await wait(*race, std::min(end, Clock::now() + kStagger));
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

}  // namespace cofferdam::egressproxy
