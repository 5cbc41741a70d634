// From a decision to something that can be dialled. Pure.
//
// AuthorizedEndpoint is the only thing the dialer takes, and authorize() is the only thing that
// makes one: an address that was not checked cannot be connected to.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <vector>

#include "common/policy/egress_policy.h"

namespace cofferdam::egressproxy {

struct Authorization;

class AuthorizedEndpoint final {
 public:
  const policy::IpAddress& address() const { return address_; }
  std::uint16_t port() const { return port_; }
  bool operator==(const AuthorizedEndpoint&) const = default;

 private:
  friend Authorization authorize(const policy::EgressPolicy&, const policy::Endpoint&,
                                 std::optional<policy::Protocol>,
                                 std::span<const policy::IpAddress>,
                                 const std::set<policy::IpAddress>&);
  AuthorizedEndpoint(const policy::IpAddress& address, std::uint16_t port)
      : address_(address), port_(port) {}
  policy::IpAddress address_;
  std::uint16_t port_;
};

struct Authorization {
  policy::Decision decision;                    // denies unless endpoints is not empty
  std::vector<AuthorizedEndpoint> endpoints;    // in the order of the addresses given
  std::vector<policy::DroppedAddress> dropped;  // for events
};

// Decides the name again and then each address; `protocol` none: any protocol that a rule permits.
Authorization authorize(const policy::EgressPolicy& policy, const policy::Endpoint& endpoint,
                        std::optional<policy::Protocol> protocol,
                        std::span<const policy::IpAddress> addresses,
                        const std::set<policy::IpAddress>& own);

}  // namespace cofferdam::egressproxy
