// EgressPolicy: the immutable rules of one sandbox's network, and the one place that decides. Pure.
//
// Deny by default: a Decision that nobody filled in denies. A name is decided before anything is
// resolved (decide_lookup, decide_name), its addresses after (decide_addresses), and only what both
// let through may be dialled. Precedence: name → port → protocol → floor class of a literal →
// ip_literal → policy tier.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "common/base/text_time.h"
#include "common/policy/address.h"
#include "common/policy/budget.h"
#include "common/policy/egress_rule.h"
#include "common/policy/host_name.h"
#include "common/policy/nat64.h"
#include "common/policy/reason.h"
#include "common/policy/rule_index.h"
#include "common/policy/upstream_proxy.h"

namespace cofferdam::policy {

struct Decision {
  Verdict verdict = Verdict::kDeny;
  Reason reason = Reason::kNoRule;
  std::string rule;  // id of the rule that decided; empty when none did
  bool allowed() const { return verdict == Verdict::kAllow; }
  // Only let pass because nothing is enforced; the reason is what enforcement would have said.
  bool monitored() const;
};

// What Decision::rule holds where a mode and no rule let something through.
inline constexpr std::string_view kOpenMode = "mode:open";
inline constexpr std::string_view kMonitorMode = "mode:monitor";

// The protocols that rules permit for one endpoint.
struct ProtocolSet {
  bool tls = false;
  bool http = false;
  bool tcp = false;
  bool any() const { return tls || http || tcp; }
  bool has(Protocol protocol) const;
  // What is spoken, where that is certain before a byte is: raw TCP where it is permitted, because
  // then nothing is looked at, or the only one there is.
  std::optional<Protocol> certain() const;
  void add(Protocol protocol);
};

struct EndpointDecision {
  Decision decision;
  ProtocolSet protocols;  // empty unless allowed
};

struct DroppedAddress {
  IpAddress address;
  Decision decision;
};

struct AddressDecision {
  Decision decision;                    // of the whole answer
  std::vector<IpAddress> allowed;       // may be answered, pinned, dialled; at most kMaxAddresses
  std::vector<DroppedAddress> dropped;  // for events only
};

enum class EgressMode : std::uint8_t {
  kEnforce,  // only what rules allow
  kOpen,     // every name and public address that is not denied
  kMonitor,  // decides like kEnforce, lets pass like kOpen, and tells the difference
};

class EgressPolicy final {
 public:
  // Addresses kept of one answer.
  static constexpr std::size_t kMaxAddresses = 16;

  // `egress.json` of docs/processes.md. An unknown key, a rule that does not parse or a doubled id
  // is an error that names it.
  static Result<EgressPolicy> parse(std::string_view text);
  static Result<EgressPolicy> from_json(const Json& json);

  // May this name be asked for at all, whatever the port?
  Decision decide_lookup(const HostName& name) const;

  // May this endpoint be reached, and with which protocols? For what does not know the protocol
  // yet.
  EndpointDecision decide_endpoint(const Endpoint& endpoint) const;

  // May this endpoint be reached with this protocol?
  Decision decide_name(const Endpoint& endpoint, Protocol protocol) const;

  // Which of the addresses of `host` may be used? `port` and `protocol` narrow to the rules that
  // speak of them; none: any (DNS has no port; a tunnel's protocol may not be known yet). `own` are
  // the addresses of this machine's interfaces. A literal host is judged by its own single address.
  AddressDecision decide_addresses(const Host& host, std::optional<std::uint16_t> port,
                                   std::span<const IpAddress> addresses,
                                   const std::set<IpAddress>& own,
                                   std::optional<Protocol> protocol = std::nullopt) const;

  // Whether a rule spells this very host out.
  bool lists(const Host& host) const { return rule_index_.lists(host); }

  // Null when there is none with this id.
  const EgressRule* find_rule(std::string_view id) const;
  // What the sandbox may use in all; each rule has its own.
  const Budget& budget() const { return budget_; }
  // The same without the rules whose time is over.
  EgressPolicy without_expired(WallTime now) const;
  // When the next rule ends by itself; none: no rule does.
  std::optional<WallTime> next_expiry() const;

  EgressMode mode() const { return mode_; }
  bool refuses_mixed_answers() const { return refuse_mixed_; }
  const std::vector<EgressRule>& rules() const { return rules_; }
  const std::vector<DenyRule>& deny_rules() const { return deny_; }
  const std::vector<Cidr>& host_addresses() const { return host_addresses_; }

  // Where to resolve; empty: the machine's own.
  struct Server {
    IpAddress address;
    std::uint16_t port = 53;
    bool operator==(const Server&) const = default;
  };
  const std::vector<Server>& servers() const { return servers_; }
  std::uint32_t resolve_timeout_ms() const { return resolve_timeout_ms_; }
  // Whether /etc/hosts of this machine answers before the servers do.
  bool uses_hosts_file() const { return use_hosts_file_; }
  // Prefixes in which IPv6 addresses stand for IPv4 ones (RFC 6052).
  const std::vector<Nat64Prefix>& nat64() const { return nat64_; }
  // The proxy that every connection goes through; none: dialled directly.
  const std::optional<UpstreamProxy>& upstream_proxy() const { return upstream_proxy_; }
  // The proxy resolves: names are sent to it, no address is checked (accepted as missing).
  bool resolves_at_proxy() const {
    return upstream_proxy_ && upstream_proxy_->connect == UpstreamProxy::Connect::kName;
  }

  // What events carry.
  const std::string& sandbox() const { return sandbox_; }
  const std::string& operation() const { return operation_; }
  const std::string& manifest() const { return manifest_; }

 private:
  EgressPolicy() = default;
  // Of mode_, when no rule decides; `nearest` is what a refusal would say.
  Decision decide_without_rule(const Host& host, Reason nearest, std::string nearest_rule) const;
  void build_index();
  Status read_rules(const Json& list);
  Status read_deny(const Json& list);
  Status read_resolver(const Json& json);
  Status read_nat64(const Json& list);
  Status read_upstream_proxy(const Json& json);
  const DenyRule* find_deny(const Host& host, std::optional<std::uint16_t> port,
                            std::optional<Protocol> protocol) const;
  // The refusal that the spelling of a host brings with it, before any port is looked at.
  std::optional<Decision> refuse_host(const Host& host) const;
  Decision decide_address(const IpAddress& address, std::span<const Cidr> opened,
                          const std::set<IpAddress>& own, std::optional<std::uint16_t> port,
                          std::optional<Protocol> protocol) const;

  EgressMode mode_ = EgressMode::kEnforce;
  bool refuse_mixed_ = false;
  std::vector<EgressRule> rules_;
  std::vector<DenyRule> deny_;
  RuleIndex rule_index_;
  RuleIndex deny_index_;
  std::unordered_map<std::string, std::uint32_t> by_id_;
  Budget budget_;
  std::vector<Cidr> host_addresses_;
  std::vector<Server> servers_;
  std::uint32_t resolve_timeout_ms_ = 5000;
  bool use_hosts_file_ = false;
  std::vector<Nat64Prefix> nat64_;
  std::optional<UpstreamProxy> upstream_proxy_;
  std::string sandbox_;
  std::string operation_;
  std::string manifest_;
};

// "ADDRESS" or "ADDRESS:PORT" (IPv6 with a port in brackets) of a DNS server.
Result<EgressPolicy::Server> parse_server(std::string_view text);

}  // namespace cofferdam::policy
