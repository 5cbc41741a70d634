#include "common/policy/egress_policy.h"

#include <algorithm>

#include "common/policy/address_class.h"

namespace cofferdam::policy {
namespace {

Decision allow(std::string rule) {
  return {Verdict::kAllow, Reason::kAllowed, std::move(rule)};
}
Decision deny(Reason reason, std::string rule = {}) {
  return {Verdict::kDeny, reason, std::move(rule)};
}

}  // namespace

bool Decision::monitored() const {
  return allowed() && rule == kMonitorMode;
}

bool ProtocolSet::has(Protocol protocol) const {
  switch (protocol) {
    case Protocol::kTls:
      return tls;
    case Protocol::kHttp:
      return http;
    case Protocol::kTcp:
      break;
  }
  return tcp;
}

std::optional<Protocol> ProtocolSet::certain() const {
  if (tcp) return Protocol::kTcp;
  if (tls == http) return std::nullopt;
  return tls ? Protocol::kTls : Protocol::kHttp;
}

void ProtocolSet::add(Protocol protocol) {
  tls = tls || protocol == Protocol::kTls;
  http = http || protocol == Protocol::kHttp;
  tcp = tcp || protocol == Protocol::kTcp;
}

void EgressPolicy::build_index() {
  rule_index_ = {};
  deny_index_ = {};
  by_id_.clear();
  for (std::uint32_t i = 0; i < rules_.size(); ++i) {
    rule_index_.add(rules_[i].pattern, i);
    by_id_.emplace(rules_[i].id, i);
  }
  for (std::uint32_t i = 0; i < deny_.size(); ++i) deny_index_.add(deny_[i].pattern, i);
}

const EgressRule* EgressPolicy::find_rule(std::string_view id) const {
  const auto found = by_id_.find(std::string(id));
  return found == by_id_.end() ? nullptr : &rules_[found->second];
}

EgressPolicy EgressPolicy::without_expired(WallTime now) const {
  EgressPolicy rest = *this;
  std::erase_if(rest.rules_,
                [now](const EgressRule& rule) { return rule.expires && *rule.expires <= now; });
  rest.build_index();
  return rest;
}

std::optional<WallTime> EgressPolicy::next_expiry() const {
  std::optional<WallTime> next;
  for (const EgressRule& rule : rules_) {
    if (rule.expires && (!next || *rule.expires < *next)) next = rule.expires;
  }
  return next;
}

const DenyRule* EgressPolicy::find_deny(const Host& host, std::optional<std::uint16_t> port,
                                        std::optional<Protocol> protocol) const {
  if (deny_.empty()) return nullptr;
  for (const std::uint32_t number : deny_index_.find(host)) {
    const DenyRule& rule = deny_[number];
    // An entry that names a port or a protocol does not decide a question that has none.
    if (rule.port && rule.port != port) continue;
    if (rule.protocol && rule.protocol != protocol) continue;
    return &rule;
  }
  return nullptr;
}

std::optional<Decision> EgressPolicy::refuse_host(const Host& host) const {
  if (rule_index_.lists(host)) return std::nullopt;
  if (host.is_name()) {
    const auto special = special_name(host.name());
    if (special) return deny(*special);
    return std::nullopt;
  }
  const AddressClass address_class = classify(host.address(), nat64_);
  if (address_class.tier == Tier::kFloor) return deny(address_class.reason);
  if (mode_ == EgressMode::kOpen) return std::nullopt;
  if (mode_ == EgressMode::kMonitor && address_class.tier == Tier::kPublic) return std::nullopt;
  return deny(Reason::kIpLiteral);
}

Decision EgressPolicy::decide_without_rule(const Host& host, Reason nearest,
                                           std::string nearest_rule) const {
  switch (mode_) {
    case EgressMode::kOpen:
      return allow(std::string(kOpenMode));
    case EgressMode::kMonitor:
      if (nearest == Reason::kNoRule && !host.is_name()) nearest = Reason::kIpLiteral;
      return {Verdict::kAllow, nearest, std::string(kMonitorMode)};
    case EgressMode::kEnforce:
      break;
  }
  return deny(nearest, std::move(nearest_rule));
}

Decision EgressPolicy::decide_lookup(const HostName& name) const {
  const Host host(name);
  if (const DenyRule* rule = find_deny(host, std::nullopt, std::nullopt)) {
    return deny(Reason::kDeniedByRule, rule->id);
  }
  if (auto refused = refuse_host(host)) return *refused;
  const std::vector<std::uint32_t> numbers = rule_index_.find(host);
  if (!numbers.empty()) return allow(rules_[numbers.front()].id);
  return decide_without_rule(host, Reason::kNoRule, {});
}

EndpointDecision EgressPolicy::decide_endpoint(const Endpoint& endpoint) const {
  EndpointDecision result;
  Decision last = decide_name(endpoint, Protocol::kTls);
  for (const Protocol protocol : {Protocol::kTls, Protocol::kHttp, Protocol::kTcp}) {
    Decision decision = decide_name(endpoint, protocol);
    if (!decision.allowed()) {
      // "This protocol is not" says less than what another protocol met.
      if (last.reason == Reason::kProtocolNotAllowed) last = std::move(decision);
      continue;
    }
    if (!result.protocols.any()) result.decision = decision;
    result.protocols.add(protocol);
  }
  if (!result.protocols.any()) result.decision = std::move(last);
  return result;
}

Decision EgressPolicy::decide_name(const Endpoint& endpoint, Protocol protocol) const {
  const Host& host = endpoint.host;
  if (const DenyRule* rule = find_deny(host, endpoint.port, protocol)) {
    return deny(Reason::kDeniedByRule, rule->id);
  }
  if (auto refused = refuse_host(host)) return *refused;
  Reason nearest = Reason::kNoRule;
  std::string rule_id;
  for (const std::uint32_t number : rule_index_.find(host)) {
    const EgressRule& rule = rules_[number];
    if (rule.port == endpoint.port && rule.protocol == protocol) return allow(rule.id);
    if (rule.port == endpoint.port) {
      nearest = Reason::kProtocolNotAllowed;
      rule_id = rule.id;
    } else if (nearest == Reason::kNoRule) {
      nearest = Reason::kPortNotAllowed;
      rule_id = rule.id;
    }
  }
  // Where TLS and HTTP are at home the name inside is verified, or a deny rule would be escaped by
  // an address that two names share.
  const bool named_inside = endpoint.port == 80 || endpoint.port == 443;
  if (mode_ != EgressMode::kEnforce && protocol == Protocol::kTcp && named_inside) {
    if (nearest == Reason::kNoRule) nearest = Reason::kProtocolNotAllowed;
    return deny(nearest, std::move(rule_id));
  }
  return decide_without_rule(host, nearest, std::move(rule_id));
}

Decision EgressPolicy::decide_address(const IpAddress& address, std::span<const Cidr> opened,
                                      const std::set<IpAddress>& own,
                                      std::optional<std::uint16_t> port,
                                      std::optional<Protocol> protocol) const {
  const AddressClass address_class = classify(address, nat64_);
  if (address_class.tier == Tier::kFloor) return deny(address_class.reason);
  const auto inner = embedded_v4(address, nat64_);
  for (const IpAddress& one : {address, inner.value_or(address)}) {
    if (own.contains(one)) return deny(Reason::kHostAddress);
    for (const Cidr& cidr : host_addresses_) {
      if (cidr.contains(one)) return deny(Reason::kHostAddress);
    }
    if (deny_.empty()) continue;
    for (const std::uint32_t number : deny_index_.find(Host(one))) {
      const DenyRule& rule = deny_[number];
      if (rule.pattern.kind() != HostPattern::Kind::kExact) continue;
      // A question without a port (DNS) is not decided by an entry that has a port or a protocol;
      // one whose protocol is not known yet is.
      if (rule.port && rule.port != port) continue;
      if (rule.protocol && (!port || (protocol && rule.protocol != protocol))) continue;
      return deny(Reason::kDeniedByRule, rule.id);
    }
  }
  if (!is_open(address, opened, nat64_)) return deny(address_class.reason);
  return allow({});
}

AddressDecision EgressPolicy::decide_addresses(const Host& host, std::optional<std::uint16_t> port,
                                               std::span<const IpAddress> addresses,
                                               const std::set<IpAddress>& own,
                                               std::optional<Protocol> protocol) const {
  AddressDecision result;
  std::vector<Cidr> opened;
  std::string rule_id;
  for (const std::uint32_t number : rule_index_.find(host)) {
    const EgressRule& rule = rules_[number];
    if (port && rule.port != *port) continue;
    if (protocol && rule.protocol != *protocol) continue;
    if (rule_id.empty()) rule_id = rule.id;
    opened.insert(opened.end(), rule.addresses.begin(), rule.addresses.end());
  }
  if (rule_id.empty() && mode_ == EgressMode::kOpen) rule_id = kOpenMode;
  if (rule_id.empty() && mode_ == EgressMode::kMonitor) rule_id = kMonitorMode;
  if (rule_id.empty()) return result;
  for (const IpAddress& address : addresses) {
    Decision decision = decide_address(address, opened, own, port, protocol);
    if (!decision.allowed()) {
      result.dropped.push_back({address, std::move(decision)});
    } else if (result.allowed.size() < kMaxAddresses) {
      result.allowed.push_back(address);
    }
  }
  if (result.allowed.empty()) {
    result.decision = result.dropped.empty()
                          ? Decision{Verdict::kError, Reason::kNoAddress, rule_id}
                          : result.dropped.front().decision;
    if (result.decision.rule.empty()) result.decision.rule = rule_id;
    return result;
  }
  if (!result.dropped.empty() && refuse_mixed_) {
    result.allowed.clear();
    result.decision = deny(Reason::kMixedAnswer, std::move(rule_id));
    return result;
  }
  result.decision = allow(std::move(rule_id));
  return result;
}

}  // namespace cofferdam::policy
