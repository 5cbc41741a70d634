// Pipeline: what every protocol goes through on its way out:
// decide the name → budgets → resolve → authorize the addresses → pin → dial → register.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "egressproxy/budgets.h"
#include "egressproxy/connections.h"
#include "egressproxy/deadlines.h"
#include "egressproxy/dialer.h"
#include "egressproxy/events.h"
#include "egressproxy/host_addresses.h"
#include "egressproxy/pins.h"
#include "egressproxy/resolver.h"
#include "egressproxy/stand_ins.h"
#include "egressproxy/stream.h"

namespace cofferdam::egressproxy {

// A connection to a server, or why there is none (`decision` denies or is an error).
struct Opened {
  policy::Decision decision;
  std::unique_ptr<Stream> upstream;
  std::optional<policy::IpAddress> address;
  std::vector<policy::DroppedAddress> dropped;
};

// The addresses that a name may be answered with.
struct Answered {
  policy::Decision decision;  // kAllow with no address: the name has none of this type
  bool name_allowed = false;  // the name is; a denial is one of its addresses
  dns::Rcode rcode = dns::Rcode::kServFail;
  std::vector<policy::IpAddress> addresses;
  std::vector<policy::DroppedAddress> dropped;
  std::vector<std::string> aliases;
  std::uint32_t ttl = 0;
};

class Pipeline final {
 public:
  Pipeline(std::shared_ptr<const policy::EgressPolicy> policy, Resolver& resolver,
           const HostAddresses& own, Recorder& recorder, const Deadlines& deadlines = {})
      : policy_(std::move(policy)),
        resolver_(resolver),
        own_(own),
        recorder_(recorder),
        deadlines_(deadlines),
        budgets_(policy_) {}

  // In one step: every decision from here on is the new policy's. Connections that it does not
  // allow are ended with policy_revoked; gives how many.
  std::size_t replace_policy(std::shared_ptr<const policy::EgressPolicy> policy);

  // `protocol` none: any that a rule permits. `preferred` is dialled first when it is among the
  // checked addresses.
  Async<Opened> open(policy::Endpoint endpoint, std::optional<policy::Protocol> protocol,
                     std::optional<policy::IpAddress> preferred = std::nullopt);
  // Without resolving: `original` itself is judged as an address of the endpoint's host, and
  // dialled.
  Async<Opened> open_original(policy::Endpoint endpoint, policy::Protocol protocol,
                              policy::IpAddress original);
  // For a connection that was opened without a protocol: what is said on it is `protocol`. Decides
  // again by the policy of now; when that allows, the connection is charged to the rule that does.
  policy::Decision settle(Connection& connection, policy::Protocol protocol);
  // For the DNS server: decides, resolves, judges, pins.
  Async<Answered> answer(policy::HostName name, dns::Type type);
  // The same where no server has to be asked; nothing where one must be.
  std::optional<Answered> answer_now(const policy::HostName& name, dns::Type type);

  const policy::EgressPolicy& policy() const { return *policy_; }
  const HostAddresses& own() const { return own_; }
  Pins& pins() { return pins_; }
  Recorder& recorder() { return recorder_; }
  Budgets& budgets() { return budgets_; }
  Connections& connections() { return connections_; }
  // What a request of `bytes` could still send to this host by its budgets; for a 413 up front.
  std::uint64_t bytes_left_up(const policy::Decision& allowed);
  const Deadlines& deadlines() const { return deadlines_; }
  // This process's name in Via fields: random, so that a request that comes back is known.
  const std::string& via() const { return via_; }

 private:
  static std::string random_via();
  // What was resolved for the endpoint: judged and pinned; `preferred` first.
  Authorization authorize_resolved(const policy::Endpoint& endpoint,
                                   std::optional<policy::Protocol> protocol,
                                   std::span<const policy::IpAddress> addresses,
                                   const std::optional<policy::IpAddress>& preferred);
  // Directly, or through the upstream proxy.
  Async<Dialled> dial(std::vector<AuthorizedEndpoint> endpoints,
                      std::optional<policy::Protocol> protocol);
  Async<Dialled> dial_through_proxy(std::vector<ProxyTarget> targets);
  // Through the upstream proxy, which resolves the name itself.
  Async<Opened> open_unresolved(policy::Endpoint endpoint, std::optional<policy::Protocol> protocol,
                                Slot slot);
  // What came of it: registered, and ended at once when the policy that decided it is no more.
  Opened registered(Opened opened, Dialled dialled, policy::Endpoint endpoint,
                    std::optional<policy::Protocol> protocol, Slot slot,
                    const std::shared_ptr<const policy::EgressPolicy>& decided_by);
  // Judges and pins what a lookup found.
  Answered judge(const policy::HostName& name, Answered answered, const Lookup& lookup);
  // The same where mixed answers are refused: by the addresses of both families.
  Answered judge_whole(const policy::HostName& name, dns::Type type, Answered answered,
                       const Lookup& lookup, const Lookup& other);
  void answer_stand_in(const policy::HostName& name, Answered& answered);

  std::shared_ptr<const policy::EgressPolicy> policy_;
  Resolver& resolver_;
  const HostAddresses& own_;
  Recorder& recorder_;
  Deadlines deadlines_;
  const std::string via_ = random_via();
  Budgets budgets_;
  Connections connections_;
  Dialer dialer_;
  Pins pins_;
  StandIns stand_ins_;
};

}  // namespace cofferdam::egressproxy
