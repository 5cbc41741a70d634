#include "egressproxy/resolver.h"

#include <algorithm>
#include <sstream>

#include "egressproxy/dns_flight.h"

namespace cofferdam::egressproxy {
namespace {

using namespace asio::experimental::awaitable_operators;  // NOLINT(google-build-using-namespace)
using policy::Reason;

constexpr std::size_t kMaxServers = 8;
constexpr std::size_t kMaxHostsLines = 100000;
constexpr std::uint32_t kHostsTtl = 60;  // seconds

const std::vector<policy::IpAddress>* hosts_of(const HostsTable& table,
                                               const policy::HostName& name) {
  const auto found = table.find(name);
  return found == table.end() ? nullptr : &found->second;
}

seconds time_to_keep(const Lookup& lookup) {
  if (lookup.reason != Reason::kAllowed) return Resolver::kFailureTtl;
  if (lookup.addresses.empty()) return Resolver::kNegativeTtl;
  return std::clamp(seconds(lookup.ttl), seconds(1), Resolver::kMaxTtl);
}

// One of each family in turn, so that where only some are kept both are there.
std::vector<policy::IpAddress> in_turn(const std::optional<Lookup>& first,
                                       const std::optional<Lookup>& second) {
  const std::vector<policy::IpAddress> none;
  const auto& a = first ? first->addresses : none;
  const auto& b = second ? second->addresses : none;
  std::vector<policy::IpAddress> all;
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (i < a.size()) all.push_back(a[i]);
    if (i < b.size()) all.push_back(b[i]);
  }
  return all;
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
    : context_(context), options_(std::move(options)), own_servers_(options_.servers) {
  ares_library_init(ARES_LIB_INIT_ALL);
  use_hosts(options_.use_hosts);
}

void Resolver::use_hosts(bool use) {
  options_.use_hosts = use;
  if (use && !hosts_) hosts_ = parse_hosts_file(options_.hosts_text);
}

void Resolver::adopt(const policy::EgressPolicy& policy) {
  const auto& servers = policy.servers().empty() ? own_servers_ : policy.servers();
  const milliseconds timeout(policy.resolve_timeout_ms());
  if (servers == options_.servers && timeout == options_.timeout &&
      policy.uses_hosts_file() == options_.use_hosts) {
    return;
  }
  options_.servers = servers;
  options_.timeout = timeout;
  use_hosts(policy.uses_hosts_file());
  first_server_ = 0;
  ++generation_;
  cache_.clear();
  ages_.clear();
}

std::optional<Lookup> Resolver::known(const policy::HostName& name, dns::Type type) {
  const auto* listed = options_.use_hosts ? hosts_of(*hosts_, name) : nullptr;
  if (listed != nullptr) {
    Lookup lookup{Reason::kAllowed, dns::Rcode::kNoError, {}, kHostsTtl, {}, false};
    for (const auto& address : *listed) {
      if (address.is_v4() == (type == dns::Type::kA)) lookup.addresses.push_back(address);
    }
    return lookup;
  }
  const auto kept = cache_.find(Key(name, type));
  if (kept == cache_.end()) return std::nullopt;
  const auto now = Clock::now();
  if (now >= kept->second.until) {
    ages_.erase(kept->second.age);
    cache_.erase(kept);
    return std::nullopt;
  }
  ++cache_hits_;
  Lookup lookup = kept->second.lookup;
  const auto left = std::chrono::duration_cast<seconds>(kept->second.until - now);
  lookup.ttl = static_cast<std::uint32_t>(std::max<seconds::rep>(left.count(), 1));
  return lookup;
}

std::size_t Resolver::first_server() {
  if (Clock::now() >= first_server_until_) first_server_ = 0;
  return first_server_;
}

std::shared_ptr<Resolver::Pending> Resolver::start(const Key& key) {
  if (const auto flight = flights_.find(key); flight != flights_.end()) return flight->second;
  auto pending = std::make_shared<Pending>(context_);
  pending->lookup = known(key.first, key.second);
  if (pending->lookup) return pending;
  if (flights_.size() >= kMaxFlights || options_.servers.empty()) {
    pending->lookup.emplace();
    return pending;
  }
  flights_[key] = pending;
  ++questions_;
  const std::size_t first = first_server();
  DnsFlight::start(context_, options_, first, key.first, key.second,
                   [this, key, first, generation = generation_](Lookup lookup) {
                     finish(key, generation, first, std::move(lookup));
                   });
  return pending;
}

void Resolver::keep(const Key& key, const Lookup& lookup, seconds time) {
  if (const auto old = cache_.find(key); old != cache_.end()) {
    ages_.erase(old->second.age);
    cache_.erase(old);
  }
  if (cache_.size() >= kMaxKept) {
    cache_.erase(ages_.front());
    ages_.pop_front();
  }
  ages_.push_back(key);
  cache_.emplace(key, Kept{lookup, Clock::now() + time, std::prev(ages_.end())});
}

void Resolver::finish(const Key& key, std::uint64_t generation, std::size_t asked_first,
                      Lookup lookup) {
  const bool current = generation == generation_;
  if (current && lookup.kept_waiting && asked_first == first_server()) {
    first_server_ = (asked_first + 1) % std::max<std::size_t>(options_.servers.size(), 1);
    first_server_until_ = Clock::now() + kServerRest;
  }
  const seconds time = time_to_keep(lookup);
  lookup.ttl = static_cast<std::uint32_t>(time.count());
  if (current) keep(key, lookup, time);
  const auto flight = flights_.extract(key);
  flight.mapped()->lookup = std::move(lookup);
  flight.mapped()->done.cancel();
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
  // Cancelled: the service ends, and nobody answered.
  if (!six->lookup && !four->lookup) {
    Resolution cancelled;
    cancelled.reason = Reason::kResolveTimeout;
    co_return cancelled;
  }
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
  resolution.partial = !second->lookup;
  resolution.no_name = first->lookup->rcode == dns::Rcode::kNxDomain;
  resolution.addresses = in_turn(six->lookup, four->lookup);
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

HostsTable parse_hosts_file(std::string_view text) {
  HostsTable table;
  std::istringstream lines{std::string(text)};
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line) && count < kMaxHostsLines; ++count) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string word;
    if (!(words >> word)) continue;
    const auto address = policy::IpAddress::parse(word);
    if (!address) continue;
    while (words >> word) {
      const auto name = policy::HostName::parse(word);
      if (name.ok()) table[*name].push_back(*address);
    }
  }
  return table;
}

}  // namespace cofferdam::egressproxy
