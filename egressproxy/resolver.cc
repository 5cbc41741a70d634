#include "egressproxy/resolver.h"

#include <algorithm>
#include <sstream>

#include "egressproxy/dns_flight.h"

namespace cofferdam::egressproxy {
namespace {

using namespace asio::experimental::awaitable_operators;  // NOLINT(google-build-using-namespace)
using policy::Reason;

constexpr std::size_t kMaxKept = 16384;
constexpr std::size_t kMaxServers = 8;

seconds time_to_keep(const Lookup& lookup) {
  if (lookup.reason != Reason::kAllowed || lookup.addresses.empty()) return Resolver::kNegativeTtl;
  return std::clamp(seconds(lookup.ttl), seconds(1), Resolver::kMaxTtl);
}

void append_addresses(const std::optional<Lookup>& lookup, std::vector<policy::IpAddress>& to) {
  if (lookup) to.insert(to.end(), lookup->addresses.begin(), lookup->addresses.end());
}

// Why two families together have no address.
Reason why_nothing(const std::optional<Lookup>& first, const std::optional<Lookup>& second) {
  for (const auto* one : {&first, &second}) {
    if (!*one || (*one)->reason == Reason::kResolveTimeout) return Reason::kResolveTimeout;
  }
  for (const auto* one : {&first, &second}) {
    if ((*one)->reason != Reason::kAllowed || (*one)->rcode == dns::Rcode::kNxDomain) {
      return Reason::kResolveFailed;
    }
  }
  return Reason::kNoAddress;
}

}  // namespace

Resolver::Resolver(asio::io_context& context, Options options)
    : context_(context), options_(std::move(options)) {
  ares_library_init(ARES_LIB_INIT_ALL);
}

std::shared_ptr<Resolver::Pending> Resolver::start(const Key& key) {
  const auto now = Clock::now();
  if (const auto kept = cache_.find(key); kept != cache_.end()) {
    if (now < kept->second.until) {
      auto pending = std::make_shared<Pending>(context_);
      pending->lookup = kept->second.lookup;
      const auto left = std::chrono::duration_cast<seconds>(kept->second.until - now);
      pending->lookup->ttl = static_cast<std::uint32_t>(std::max<seconds::rep>(left.count(), 1));
      return pending;
    }
    cache_.erase(kept);
  }
  if (const auto flight = flights_.find(key); flight != flights_.end()) return flight->second;
  auto pending = std::make_shared<Pending>(context_);
  flights_[key] = pending;
  ++questions_;
  DnsFlight::start(context_, options_, key.first, key.second, [this, key, pending](Lookup lookup) {
    finish(key, pending, std::move(lookup));
  });
  return pending;
}

void Resolver::finish(const Key& key, const std::shared_ptr<Pending>& pending, Lookup lookup) {
  const seconds keep = time_to_keep(lookup);
  lookup.ttl = static_cast<std::uint32_t>(keep.count());
  if (cache_.size() >= kMaxKept) cache_.clear();
  cache_.insert_or_assign(key, Kept{lookup, Clock::now() + keep});
  flights_.erase(key);
  pending->lookup = std::move(lookup);
  pending->done.cancel();
}

Async<void> Resolver::wait(std::shared_ptr<Pending> pending) {
  while (!pending->lookup) {
    co_await pending->done.async_wait(kNoThrow);
    const auto cancelled = co_await asio::this_coro::cancellation_state;
    if (cancelled.cancelled() != asio::cancellation_type::none) co_return;
  }
}

Async<Lookup> Resolver::lookup(policy::HostName name, dns::Type type) {
  const std::shared_ptr<Pending> pending = start(Key(std::move(name), type));
  co_await wait(pending);
  co_return pending->lookup.value_or(Lookup{});
}

Async<Resolution> Resolver::resolve(policy::HostName name, bool complete) {
  const std::shared_ptr<Pending> six = start(Key(name, dns::Type::kAaaa));
  const std::shared_ptr<Pending> four = start(Key(name, dns::Type::kA));
  if (!six->lookup && !four->lookup) co_await (wait(six) || wait(four));
  const std::shared_ptr<Pending>& first = six->lookup ? six : four;
  const std::shared_ptr<Pending>& second = six->lookup ? four : six;
  if (!second->lookup) {
    if (complete || first->lookup->addresses.empty()) {
      co_await wait(second);
    } else {
      co_await (wait(second) || sleep_for(kFamilyDelay));
    }
  }
  Resolution resolution;
  append_addresses(six->lookup, resolution.addresses);
  append_addresses(four->lookup, resolution.addresses);
  resolution.reason =
      resolution.addresses.empty() ? why_nothing(six->lookup, four->lookup) : Reason::kAllowed;
  // A strict policy judges whole answers: half of one is none.
  const bool whole = six->lookup && four->lookup && six->lookup->reason == Reason::kAllowed &&
                     four->lookup->reason == Reason::kAllowed;
  if (complete && !whole && !resolution.addresses.empty()) {
    resolution.reason = why_nothing(six->lookup, four->lookup);
    resolution.addresses.clear();
  }
  co_return resolution;
}

std::vector<policy::EgressPolicy::Server> servers_of_resolv_conf(std::string_view text) {
  std::vector<policy::EgressPolicy::Server> servers;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string keyword;
    std::string address;
    if (!(words >> keyword >> address) || keyword != "nameserver") continue;
    const auto server = policy::parse_server(address);
    if (server.ok() && servers.size() < kMaxServers) servers.push_back(*server);
  }
  return servers;
}

}  // namespace cofferdam::egressproxy
