#include "egressproxy/authorize.h"

namespace cofferdam::egressproxy {

Authorization authorize(const policy::EgressPolicy& policy, const policy::Endpoint& endpoint,
                        std::optional<policy::Protocol> protocol,
                        std::span<const policy::IpAddress> addresses,
                        const std::set<policy::IpAddress>& own) {
  Authorization result;
  const policy::Decision name = protocol ? policy.decide_name(endpoint, *protocol)
                                         : policy.decide_endpoint(endpoint).decision;
  if (!name.allowed()) {
    result.decision = name;
    return result;
  }
  policy::AddressDecision judged =
      policy.decide_addresses(endpoint.host, endpoint.port, addresses, own, protocol);
  result.decision = judged.decision;
  // What named the endpoint is what is to be told.
  if (result.decision.allowed()) result.decision = name;
  for (const policy::IpAddress& address : judged.allowed) {
    result.endpoints.push_back(AuthorizedEndpoint(address, endpoint.port));
  }
  result.dropped = std::move(judged.dropped);
  return result;
}

}  // namespace cofferdam::egressproxy
