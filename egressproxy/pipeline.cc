#include "egressproxy/pipeline.h"

#include <algorithm>

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

// A new connection that could not be recorded is not made.
Decision unrecordable() {
  return {Verdict::kDeny, Reason::kQuotaExceeded, {}};
}

}  // namespace

std::size_t Pipeline::replace_policy(std::shared_ptr<const policy::EgressPolicy> policy) {
  policy_ = std::move(policy);
  budgets_.adopt(policy_);
  return enforce_policy(connections_, *policy_, budgets_, own_.current());
}

std::uint64_t Pipeline::bytes_left_up(const Decision& allowed) {
  const auto up = static_cast<std::size_t>(Direction::kUp);
  return std::min(budgets_.account(allowed.rule).left[up], budgets_.sandbox().left[up]);
}

Async<Opened> Pipeline::open(policy::Endpoint endpoint, std::optional<policy::Protocol> protocol,
                             std::optional<policy::IpAddress> preferred) {
  if (!recorder_.can_record()) co_return refused(unrecordable());
  const Decision name = protocol ? policy_->decide_name(endpoint, *protocol)
                                 : policy_->decide_endpoint(endpoint).decision;
  if (!name.allowed()) co_return refused(name);
  Admission admission = budgets_.admit(name, Clock::now());
  if (!admission.slot) co_return refused(admission.decision);
  std::vector<policy::IpAddress> addresses;
  if (endpoint.host.is_name()) {
    Decision lookup = budgets_.admit_name(endpoint.host.name(), name, Clock::now());
    if (!lookup.allowed()) co_return refused(std::move(lookup));
    Resolution resolution =
        co_await resolver_.resolve(endpoint.host.name(), policy_->refuses_mixed_answers());
    if (resolution.addresses.empty()) {
      Decision failed{Verdict::kError, resolution.reason, name.rule};
      co_return refused(std::move(failed));
    }
    addresses = std::move(resolution.addresses);
  } else {
    addresses.push_back(endpoint.host.address());
  }
  Authorization authorization = authorize(*policy_, endpoint, protocol, addresses, own_.current());
  if (endpoint.host.is_name()) {
    for (const auto& one : authorization.endpoints) pins_.pin(one.address(), endpoint.host.name());
  }
  if (preferred) {
    std::stable_partition(
        authorization.endpoints.begin(), authorization.endpoints.end(),
        [&preferred](const AuthorizedEndpoint& one) { return one.address() == *preferred; });
  }
  co_return co_await dial(std::move(authorization), std::move(endpoint), protocol,
                          std::move(*admission.slot));
}

Async<Opened> Pipeline::open_original(policy::Endpoint endpoint, policy::Protocol protocol,
                                      policy::IpAddress original) {
  if (!recorder_.can_record()) co_return refused(unrecordable());
  const std::vector<policy::IpAddress> addresses{original};
  Authorization authorization = authorize(*policy_, endpoint, protocol, addresses, own_.current());
  if (!authorization.decision.allowed()) {
    Opened opened = refused(authorization.decision);
    opened.dropped = std::move(authorization.dropped);
    co_return opened;
  }
  Admission admission = budgets_.admit(authorization.decision, Clock::now());
  if (!admission.slot) co_return refused(admission.decision);
  co_return co_await dial(std::move(authorization), std::move(endpoint), protocol,
                          std::move(*admission.slot));
}

Async<Opened> Pipeline::dial(Authorization authorization, policy::Endpoint endpoint,
                             std::optional<policy::Protocol> protocol, Slot slot) {
  Opened opened;
  opened.decision = authorization.decision;
  opened.dropped = std::move(authorization.dropped);
  if (!opened.decision.allowed()) co_return opened;
  const std::shared_ptr<const policy::EgressPolicy> decided_by = policy_;
  Dialled dialled = co_await dialer_.dial(std::move(authorization.endpoints));
  if (!dialled.socket) {
    const Reason reason = dialled.timed_out ? Reason::kDeadline : dialled.reason;
    opened.decision = {Verdict::kError, reason, opened.decision.rule};
    co_return opened;
  }
  opened.address = dialled.address;
  const ConnectionInfo info{std::move(endpoint), protocol, *dialled.address, opened.decision};
  auto connection = connections_.open(info, std::move(slot));
  auto upstream = std::make_unique<Stream>(std::move(*dialled.socket), std::move(connection));
  // Another policy came while it was dialled.
  if (decided_by != policy_) enforce_policy(connections_, *policy_, budgets_, own_.current());
  if (upstream->connection()->ended()) {
    opened.decision = *upstream->connection()->ended();
    co_return opened;
  }
  opened.upstream = std::move(upstream);
  co_return opened;
}

Async<Answered> Pipeline::answer(policy::HostName name, dns::Type type) {
  Answered answered;
  answered.decision = recorder_.can_record() ? policy_->decide_lookup(name) : unrecordable();
  if (!answered.decision.allowed()) co_return answered;
  if (type != dns::Type::kA && type != dns::Type::kAaaa) {
    answered.rcode = dns::Rcode::kNoError;
    co_return answered;
  }
  answered.decision = budgets_.admit_name(name, answered.decision, Clock::now());
  if (!answered.decision.allowed()) co_return answered;
  const Decision asked = answered.decision;
  const Lookup lookup = co_await resolver_.lookup(name, type);
  answered.rcode = lookup.rcode;
  answered.ttl = lookup.ttl;
  if (lookup.reason != Reason::kAllowed) {
    answered.decision = {Verdict::kError, lookup.reason, answered.decision.rule};
    co_return answered;
  }
  if (lookup.addresses.empty()) co_return answered;
  policy::AddressDecision judged =
      policy_->decide_addresses(policy::Host(name), std::nullopt, lookup.addresses, own_.current());
  answered.dropped = std::move(judged.dropped);
  answered.decision = judged.decision;
  if (judged.decision.monitored() && asked.monitored()) answered.decision = asked;
  if (judged.decision.allowed() && !answered.dropped.empty()) {
    answered.decision.reason = Reason::kMixedAnswer;
  }
  answered.addresses = std::move(judged.allowed);
  for (const auto& address : answered.addresses) pins_.pin(address, name);
  co_return answered;
}

}  // namespace cofferdam::egressproxy
