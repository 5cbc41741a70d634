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

Async<Opened> Pipeline::open(policy::Endpoint endpoint, std::optional<policy::Protocol> protocol,
                             std::optional<policy::IpAddress> preferred) {
  if (!recorder_.can_record()) co_return refused(unrecordable());
  const Decision name = protocol ? policy_->decide_name(endpoint, *protocol)
                                 : policy_->decide_endpoint(endpoint).decision;
  if (!name.allowed()) co_return refused(name);
  std::vector<policy::IpAddress> addresses;
  if (endpoint.host.is_name()) {
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
  co_return co_await dial(std::move(authorization));
}

Async<Opened> Pipeline::open_original(policy::Endpoint endpoint, policy::Protocol protocol,
                                      policy::IpAddress original) {
  if (!recorder_.can_record()) co_return refused(unrecordable());
  const std::vector<policy::IpAddress> addresses{original};
  co_return co_await dial(authorize(*policy_, endpoint, protocol, addresses, own_.current()));
}

Async<Opened> Pipeline::dial(Authorization authorization) {
  Opened opened;
  opened.decision = authorization.decision;
  opened.dropped = std::move(authorization.dropped);
  if (!opened.decision.allowed()) co_return opened;
  Dialled dialled = co_await dialer_.dial(std::move(authorization.endpoints));
  if (!dialled.socket) {
    const Reason reason = dialled.timed_out ? Reason::kDeadline : dialled.reason;
    opened.decision = {Verdict::kError, reason, opened.decision.rule};
    co_return opened;
  }
  opened.address = dialled.address;
  opened.upstream = std::make_unique<Stream>(std::move(*dialled.socket));
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
  if (judged.decision.allowed() && !answered.dropped.empty()) {
    answered.decision.reason = Reason::kMixedAnswer;
  }
  answered.addresses = std::move(judged.allowed);
  for (const auto& address : answered.addresses) pins_.pin(address, name);
  co_return answered;
}

}  // namespace cofferdam::egressproxy
