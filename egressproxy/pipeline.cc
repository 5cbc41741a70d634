#include "egressproxy/pipeline.h"

#include <algorithm>
#include <random>

#include "common/log/diagnostics.h"

namespace cofferdam::egressproxy {
namespace {

using policy::Decision;
using policy::Reason;
using policy::Verdict;

Opened refused(Decision decision) {
  Opened opened;
  opened.decision = std::move(decision);
  return opened;
}

dns::Type other_family(dns::Type type) {
  return type == dns::Type::kA ? dns::Type::kAaaa : dns::Type::kA;
}

// A new connection that could not be recorded is not made.
Decision unrecordable() {
  return {Verdict::kDeny, Reason::kQuotaExceeded, {}};
}

}  // namespace

std::string Pipeline::random_via() {
  std::random_device random;
  std::string name = "cofferdam-";
  for (int i = 0; i < 16; ++i) name += "0123456789abcdef"[random() & 15U];
  return name;
}

std::size_t Pipeline::replace_policy(std::shared_ptr<const policy::EgressPolicy> policy) {
  policy_ = std::move(policy);
  budgets_.adopt(policy_);
  resolver_.adopt(*policy_);
  return enforce_policy(connections_, *policy_, budgets_, own_.current());
}

std::uint64_t Pipeline::bytes_left_up(const Decision& allowed) {
  const auto up = static_cast<std::size_t>(Direction::kUp);
  return std::min(budgets_.account(allowed.rule).left[up], budgets_.sandbox().left[up]);
}

Async<Opened> Pipeline::open(policy::Endpoint endpoint, std::optional<policy::Protocol> protocol,
                             std::optional<policy::IpAddress> preferred) {
  if (!recorder_.can_record()) co_return refused(unrecordable());
  const std::shared_ptr<const policy::EgressPolicy> decided_by = policy_;
  const Decision name = protocol ? policy_->decide_name(endpoint, *protocol)
                                 : policy_->decide_endpoint(endpoint).decision;
  if (!name.allowed()) co_return refused(name);
  Admission admission = budgets_.admit(name, Clock::now());
  if (!admission.slot) co_return refused(admission.decision);
  Resolution resolution;
  if (endpoint.host.is_name()) {
    Decision lookup = budgets_.admit_name(endpoint.host.name(), name, Clock::now());
    if (!lookup.allowed()) co_return refused(std::move(lookup));
    if (policy_->resolves_at_proxy()) {
      co_return co_await open_unresolved(endpoint, protocol, std::move(*admission.slot));
    }
    const bool strict = policy_->refuses_mixed_answers();
    resolution = co_await resolver_.resolve(endpoint.host.name(), strict);
    if (!resolution.answered() && !strict && preferred &&
        pins_.holds(*preferred, endpoint.host.name())) {
      // The servers are out of order, but this address was answered for this name and is judged
      // again: what is running goes on.
      resolution.addresses.push_back(*preferred);
    }
    if (resolution.addresses.empty()) {
      Decision failed{Verdict::kError, resolution.reason, name.rule};
      co_return refused(std::move(failed));
    }
  } else {
    resolution.addresses.push_back(endpoint.host.address());
  }
  Authorization authorization =
      authorize_resolved(endpoint, protocol, resolution.addresses, preferred);
  Opened opened = refused(authorization.decision);
  opened.dropped = std::move(authorization.dropped);
  if (!opened.decision.allowed()) co_return opened;
  Dialled dialled = co_await dial(std::move(authorization.endpoints), protocol);
  if (!dialled.socket && resolution.partial) {
    // One family failed before the other was known.
    Resolution whole = co_await resolver_.resolve(endpoint.host.name(), true);
    std::erase_if(whole.addresses, [&resolution](const policy::IpAddress& one) {
      return std::find(resolution.addresses.begin(), resolution.addresses.end(), one) !=
             resolution.addresses.end();
    });
    Authorization rest = authorize_resolved(endpoint, protocol, whole.addresses, std::nullopt);
    if (!rest.endpoints.empty()) dialled = co_await dial(std::move(rest.endpoints), protocol);
  }
  co_return registered(std::move(opened), std::move(dialled), std::move(endpoint), protocol,
                       std::move(*admission.slot), decided_by);
}

Authorization Pipeline::authorize_resolved(const policy::Endpoint& endpoint,
                                           std::optional<policy::Protocol> protocol,
                                           std::span<const policy::IpAddress> addresses,
                                           const std::optional<policy::IpAddress>& preferred) {
  Authorization authorization =
      authorize(*policy_, endpoint, protocol, addresses, own_.among(addresses, policy_->nat64()));
  if (endpoint.host.is_name()) {
    for (const auto& one : authorization.endpoints) pins_.pin(one.address(), endpoint.host.name());
  }
  if (preferred) {
    std::stable_partition(
        authorization.endpoints.begin(), authorization.endpoints.end(),
        [&preferred](const AuthorizedEndpoint& one) { return one.address() == *preferred; });
  }
  return authorization;
}

Async<Opened> Pipeline::open_original(policy::Endpoint endpoint, policy::Protocol protocol,
                                      policy::IpAddress original) {
  if (!recorder_.can_record()) co_return refused(unrecordable());
  const std::shared_ptr<const policy::EgressPolicy> decided_by = policy_;
  if (endpoint.host.is_name() && policy_->resolves_at_proxy()) {
    co_return co_await open(std::move(endpoint), protocol, std::nullopt);
  }
  const std::vector<policy::IpAddress> addresses{original};
  Authorization authorization =
      authorize(*policy_, endpoint, protocol, addresses, own_.among(addresses, policy_->nat64()));
  Opened opened = refused(authorization.decision);
  opened.dropped = std::move(authorization.dropped);
  if (!opened.decision.allowed()) co_return opened;
  Admission admission = budgets_.admit(authorization.decision, Clock::now());
  if (!admission.slot) co_return refused(admission.decision);
  Dialled dialled = co_await dial(std::move(authorization.endpoints), protocol);
  co_return registered(std::move(opened), std::move(dialled), std::move(endpoint), protocol,
                       std::move(*admission.slot), decided_by);
}

Async<Dialled> Pipeline::dial(std::vector<AuthorizedEndpoint> endpoints,
                              std::optional<policy::Protocol> protocol) {
  // A client of TLS or HTTP speaks first; nothing else passes where one of them is decided.
  const bool ours = protocol && *protocol != policy::Protocol::kTcp;
  if (!policy_->upstream_proxy()) {
    return dialer_.dial(std::move(endpoints), ours ? FirstWord::kOurs : FirstWord::kEither);
  }
  std::vector<ProxyTarget> targets;
  for (const AuthorizedEndpoint& one : interleave(std::move(endpoints))) targets.emplace_back(one);
  return dial_through_proxy(std::move(targets));
}

Opened Pipeline::registered(Opened opened, Dialled dialled, policy::Endpoint endpoint,
                            std::optional<policy::Protocol> protocol, Slot slot,
                            const std::shared_ptr<const policy::EgressPolicy>& decided_by) {
  if (!dialled.socket) {
    const Reason reason = dialled.timed_out ? Reason::kDeadline : dialled.reason;
    opened.decision = {Verdict::kError, reason, opened.decision.rule};
    return opened;
  }
  opened.address = dialled.address;
  const ConnectionInfo info{std::move(endpoint), protocol, dialled.address, opened.decision};
  auto connection = connections_.open(info, std::move(slot));
  auto upstream = std::make_unique<Stream>(std::move(*dialled.socket), std::move(connection));
  // Another policy came while it was dialled.
  if (decided_by != policy_) enforce_policy(connections_, *policy_, budgets_, own_.current());
  if (upstream->connection()->ended()) {
    opened.decision = *upstream->connection()->ended();
    return opened;
  }
  opened.upstream = std::move(upstream);
  return opened;
}

Decision Pipeline::settle(Connection& connection, policy::Protocol protocol) {
  ConnectionInfo info = connection.info();
  info.protocol = protocol;
  Decision decision = decide_again(info, *policy_, own_.current());
  if (!decision.allowed()) return decision;
  decision = budgets_.readmit(decision, connection.meter().rule(), Clock::now());
  if (!decision.allowed()) return decision;
  connection.set_protocol(protocol);
  connection.charge_to(budgets_.account(decision.rule), decision);
  return decision;
}

Async<Opened> Pipeline::open_unresolved(policy::Endpoint endpoint,
                                        std::optional<policy::Protocol> protocol, Slot slot) {
  const std::shared_ptr<const policy::EgressPolicy> decided_by = policy_;
  NameAuthorization authorization = authorize_unresolved(*policy_, endpoint, protocol);
  Opened opened = refused(authorization.decision);
  if (!authorization.target) co_return opened;
  std::vector<ProxyTarget> targets(1, *authorization.target);
  Dialled dialled = co_await dial_through_proxy(std::move(targets));
  co_return registered(std::move(opened), std::move(dialled), std::move(endpoint), protocol,
                       std::move(slot), decided_by);
}

Async<Dialled> Pipeline::dial_through_proxy(std::vector<ProxyTarget> targets) {
  const std::shared_ptr<const policy::EgressPolicy> policy = policy_;
  const policy::UpstreamProxy& proxy = *policy->upstream_proxy();
  Dialled failed;
  failed.reason = Reason::kUpstreamProxyFailed;
  std::vector<policy::IpAddress> addresses;
  if (proxy.endpoint.host.is_name()) {
    Resolution resolution = co_await resolver_.resolve(proxy.endpoint.host.name(), false);
    addresses = std::move(resolution.addresses);
  } else {
    addresses.push_back(proxy.endpoint.host.address());
  }
  ProxyAuthorization authorization = authorize_proxy(proxy, addresses, own_.among(addresses, {}));
  if (authorization.endpoints.empty()) {
    if (!addresses.empty()) {
      spdlog::warn("the upstream proxy {} cannot be used: {}", proxy.to_text(),
                   policy::to_text(authorization.reason));
    }
    co_return failed;
  }
  co_return co_await dialer_.dial_through(proxy, std::move(authorization.endpoints),
                                          std::move(targets));
}

std::optional<Answered> Pipeline::answer_now(const policy::HostName& name, dns::Type type) {
  Answered answered;
  answered.decision = recorder_.can_record() ? policy_->decide_lookup(name) : unrecordable();
  if (!answered.decision.allowed()) return answered;
  answered.name_allowed = true;
  const bool address = type == dns::Type::kA || type == dns::Type::kAaaa;
  if (!address) {
    answered.rcode = dns::Rcode::kNoError;
    return answered;
  }
  answered.decision = budgets_.admit_name(name, answered.decision, Clock::now());
  if (!answered.decision.allowed()) return answered;
  if (policy_->resolves_at_proxy()) {
    answered.rcode = dns::Rcode::kNoError;
    if (type == dns::Type::kA) answer_stand_in(name, answered);
    return answered;
  }
  const auto known = resolver_.known(name, type);
  if (!known) return std::nullopt;
  if (!policy_->refuses_mixed_answers()) return judge(name, std::move(answered), *known);
  const auto other = resolver_.known(name, other_family(type));
  if (!other) return std::nullopt;
  return judge_whole(name, type, std::move(answered), *known, *other);
}

Async<Answered> Pipeline::answer(policy::HostName name, dns::Type type) {
  if (auto now = answer_now(name, type)) co_return std::move(*now);
  if (policy_->refuses_mixed_answers()) (void)co_await resolver_.resolve(name, true);
  const Lookup lookup = co_await resolver_.lookup(name, type);
  Lookup other;
  if (policy_->refuses_mixed_answers()) {
    other = co_await resolver_.lookup(name, other_family(type));
  }
  // Decided again: the policy may have been replaced meanwhile.
  Answered answered;
  answered.decision = policy_->decide_lookup(name);
  answered.name_allowed = answered.decision.allowed();
  if (!answered.name_allowed) co_return answered;
  if (policy_->refuses_mixed_answers()) {
    co_return judge_whole(name, type, std::move(answered), lookup, other);
  }
  co_return judge(name, std::move(answered), lookup);
}

Answered Pipeline::judge_whole(const policy::HostName& name, dns::Type type, Answered answered,
                               const Lookup& lookup, const Lookup& other) {
  Lookup both = lookup;
  // Half of an answer is none.
  if (other.reason != Reason::kAllowed) both.reason = other.reason;
  both.addresses.insert(both.addresses.end(), other.addresses.begin(), other.addresses.end());
  answered = judge(name, std::move(answered), both);
  const bool v4 = type == dns::Type::kA;
  std::erase_if(answered.addresses,
                [v4](const policy::IpAddress& one) { return one.is_v4() != v4; });
  return answered;
}

void Pipeline::answer_stand_in(const policy::HostName& name, Answered& answered) {
  const auto address = stand_ins_.address_of(name);
  if (!address) {
    answered.decision = {Verdict::kDeny, Reason::kQuotaExceeded, answered.decision.rule};
    return;
  }
  pins_.pin(*address, name);
  answered.addresses.push_back(*address);
  answered.ttl = static_cast<std::uint32_t>(Resolver::kMaxTtl.count());
}

Answered Pipeline::judge(const policy::HostName& name, Answered answered, const Lookup& lookup) {
  const Decision asked = answered.decision;
  answered.rcode = lookup.rcode;
  answered.ttl = lookup.ttl;
  answered.aliases = lookup.aliases;
  if (lookup.reason != Reason::kAllowed) {
    answered.decision = {Verdict::kError, lookup.reason, answered.decision.rule};
    return answered;
  }
  if (lookup.addresses.empty()) return answered;
  policy::AddressDecision judged =
      policy_->decide_addresses(policy::Host(name), std::nullopt, lookup.addresses,
                                own_.among(lookup.addresses, policy_->nat64()));
  answered.dropped = std::move(judged.dropped);
  answered.decision = judged.decision;
  if (judged.decision.monitored() && asked.monitored()) answered.decision = asked;
  if (judged.decision.allowed() && !answered.dropped.empty()) {
    answered.decision.reason = Reason::kMixedAnswer;
  }
  answered.addresses = std::move(judged.allowed);
  for (const auto& address : answered.addresses) pins_.pin(address, name);
  return answered;
}

}  // namespace cofferdam::egressproxy
