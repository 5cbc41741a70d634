// Resolver: names to addresses by c-ares, for names that were decided before.
//
// A and AAAA are asked for separately, with absolute names, no search list, no environment; the
// chain of owners in the answer is followed by parse_answer. One question at a time per name and
// type (single flight), positive answers are kept for 1..300 s, negative ones for 5 s, failures for
// 1 s. A server that kept a question waiting is asked last for a minute. It judges no address: who
// uses one asks the policy.
#pragma once

#include <list>
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
  bool kept_waiting = false;  // the first server did not answer in its time
};

// Both families together. Without addresses `reason` says why: kResolveFailed, kResolveTimeout,
// kNoAddress.
struct Resolution {
  policy::Reason reason = policy::Reason::kResolveFailed;
  std::vector<policy::IpAddress> addresses;  // AAAA and A in turn
  bool partial = false;                      // one family has not answered yet
  // A server said something about the name, be it that it does not exist.
  bool answered() const {
    return reason == policy::Reason::kAllowed || reason == policy::Reason::kNoAddress || no_name;
  }
  bool no_name = false;  // NXDOMAIN
};

// What a hosts file says (hosts(5)).
using HostsTable = std::map<policy::HostName, std::vector<policy::IpAddress>>;

class Resolver final {
 public:
  struct Options {
    std::vector<policy::EgressPolicy::Server> servers;  // none: nothing is asked
    milliseconds timeout{5000};                         // of one question, in all
    std::string hosts_text;                             // of the hosts file, read at the start
    bool use_hosts = false;                             // whether it answers before any server
  };
  static constexpr milliseconds kFamilyDelay{50};  // RFC 8305, "resolution delay"
  static constexpr seconds kMaxTtl{300};
  static constexpr seconds kNegativeTtl{5};
  static constexpr seconds kFailureTtl{1};
  static constexpr seconds kServerRest{60};
  static constexpr std::size_t kMaxKept = 4096;     // answers; the oldest goes
  static constexpr std::size_t kMaxFlights = 1024;  // questions at once; past it they fail

  Resolver(asio::io_context& context, Options options);

  // A policy that came later: its servers (those of the start when it names none), its deadline,
  // and whether the hosts file counts. What is kept is forgotten when any of it changed.
  void adopt(const policy::EgressPolicy& policy);

  // What needs no question: the hosts table's answer, or one that was kept.
  std::optional<Lookup> known(const policy::HostName& name, dns::Type type);
  Async<Lookup> lookup(policy::HostName name, dns::Type type);
  // `complete`: waits for both families to the end; else a family that has answered with addresses
  // waits kFamilyDelay for the other.
  Async<Resolution> resolve(policy::HostName name, bool complete);

  std::uint64_t questions_sent() const { return questions_; }
  std::size_t questions_under_way() const { return flights_.size(); }
  std::size_t kept_answers() const { return cache_.size(); }
  std::uint64_t cache_hits() const { return cache_hits_; }

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
    std::list<Key>::iterator age;
  };
  // Known, from a flight that is under way, or from a new one.
  std::shared_ptr<Pending> start(const Key& key);
  void finish(const Key& key, std::uint64_t generation, std::size_t asked_first, Lookup lookup);
  void keep(const Key& key, const Lookup& lookup, seconds time);
  std::size_t first_server();
  void use_hosts(bool use);
  static Async<void> wait(std::shared_ptr<Pending> pending);

  asio::io_context& context_;
  Options options_;
  std::vector<policy::EgressPolicy::Server> own_servers_;  // of the start
  std::optional<HostsTable> hosts_;                        // parsed when it first counts
  std::uint64_t generation_ = 0;  // of options_: what other servers answer is not kept
  std::map<Key, std::shared_ptr<Pending>> flights_;
  std::map<Key, Kept> cache_;
  std::list<Key> ages_;  // oldest first
  std::size_t first_server_ = 0;
  Clock::time_point first_server_until_;
  std::uint64_t questions_ = 0;
  std::uint64_t cache_hits_ = 0;
};

// The servers of a resolv.conf's text: its `nameserver` lines (resolv.conf(5)), zones refused.
std::vector<policy::EgressPolicy::Server> servers_of_resolv_conf(std::string_view text);

// A hosts file's text. Lines that do not parse, and names that are none, are left out.
HostsTable parse_hosts_file(std::string_view text);

}  // namespace cofferdam::egressproxy
