// Resolver: names to addresses by c-ares, for names that were decided before.
//
// A and AAAA are asked for separately, with absolute names, no hosts file, no search list, no
// environment; the chain of owners in the answer is followed by parse_answer. One question at a
// time per name and type (single flight), positive answers are kept for 1..300 s, negative ones for
// 5 s. It judges no address: who uses one asks the policy.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/policy/egress_policy.h"
#include "egressproxy/dns_message.h"
#include "egressproxy/net.h"

namespace cofferdam::egressproxy {

// One name, one type. `reason` is kAllowed when a server answered, also with no address or
// NXDOMAIN.
struct Lookup {
  policy::Reason reason = policy::Reason::kResolveFailed;
  dns::Rcode rcode = dns::Rcode::kServFail;
  std::vector<policy::IpAddress> addresses;
  std::uint32_t ttl = 0;  // seconds left, clamped
  std::vector<std::string> aliases;
};

// Both families together. Without addresses `reason` says why: kResolveFailed, kResolveTimeout,
// kNoAddress.
struct Resolution {
  policy::Reason reason = policy::Reason::kResolveFailed;
  std::vector<policy::IpAddress> addresses;  // AAAA first
};

class Resolver final {
 public:
  struct Options {
    std::vector<policy::EgressPolicy::Server> servers;  // not empty
    milliseconds timeout{5000};                         // of one question, in all
  };
  static constexpr milliseconds kFamilyDelay{50};  // RFC 8305, "resolution delay"
  static constexpr seconds kMaxTtl{300};
  static constexpr seconds kNegativeTtl{5};

  Resolver(asio::io_context& context, Options options);

  Async<Lookup> lookup(policy::HostName name, dns::Type type);
  // `complete`: waits for both families to the end; else a family that has answered with addresses
  // waits kFamilyDelay for the other.
  Async<Resolution> resolve(policy::HostName name, bool complete);

  std::uint64_t questions_sent() const { return questions_; }

 private:
  using Key = std::pair<policy::HostName, dns::Type>;
  struct Pending {
    explicit Pending(asio::io_context& context)
        : done(context, asio::steady_timer::time_point::max()) {}
    asio::steady_timer done;  // cancelled when `lookup` is there
    std::optional<Lookup> lookup;
  };
  struct Kept {
    Lookup lookup;
    Clock::time_point until;
  };
  // From the cache, from a flight that is under way, or from a new one.
  std::shared_ptr<Pending> start(const Key& key);
  void finish(const Key& key, const std::shared_ptr<Pending>& pending, Lookup lookup);
  static Async<void> wait(std::shared_ptr<Pending> pending);

  asio::io_context& context_;
  Options options_;
  std::map<Key, std::shared_ptr<Pending>> flights_;
  std::map<Key, Kept> cache_;
  std::uint64_t questions_ = 0;
};

// The servers of a resolv.conf's text: its `nameserver` lines (resolv.conf(5)), zones refused.
std::vector<policy::EgressPolicy::Server> servers_of_resolv_conf(std::string_view text);

}  // namespace cofferdam::egressproxy
