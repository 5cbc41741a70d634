// The way out through the user's own upstream proxy: which of its addresses may be dialled, what it
// is asked for, and the CONNECT that asks (RFC 9110 9.3.6).
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/policy/egress_policy.h"
#include "egressproxy/authorize.h"
#include "egressproxy/net.h"
#include "egressproxy/socket.h"

namespace cofferdam::egressproxy {

struct ProxyAuthorization;

// One checked address of the upstream proxy: only authorize_proxy() makes one.
class ProxyEndpoint final {
 public:
  const policy::IpAddress& address() const { return address_; }
  std::uint16_t port() const { return port_; }

 private:
  friend ProxyAuthorization authorize_proxy(const policy::UpstreamProxy&,
                                            std::span<const policy::IpAddress>,
                                            const std::set<policy::IpAddress>&);
  ProxyEndpoint(const policy::IpAddress& address, std::uint16_t port)
      : address_(address), port_(port) {}
  policy::IpAddress address_;
  std::uint16_t port_;
};

struct ProxyAuthorization {
  policy::Reason reason = policy::Reason::kNoAddress;  // why there is no endpoint
  std::vector<ProxyEndpoint> endpoints;
};

// Pure. `own` are the addresses of this machine's interfaces.
ProxyAuthorization authorize_proxy(const policy::UpstreamProxy& proxy,
                                   std::span<const policy::IpAddress> addresses,
                                   const std::set<policy::IpAddress>& own);

struct NameAuthorization;

// What a CONNECT asks for: a checked address, or, where the proxy resolves, a decided name.
class ProxyTarget final {
 public:
  explicit ProxyTarget(const AuthorizedEndpoint& endpoint)
      : authority_(endpoint.address().to_host_text() + ":" + std::to_string(endpoint.port())),
        address_(endpoint.address()) {}
  const std::string& authority() const { return authority_; }
  const std::optional<policy::IpAddress>& address() const { return address_; }

 private:
  friend NameAuthorization authorize_unresolved(const policy::EgressPolicy&,
                                                const policy::Endpoint&,
                                                std::optional<policy::Protocol>);
  explicit ProxyTarget(const policy::Endpoint& endpoint) : authority_(endpoint.text()) {}
  std::string authority_;
  std::optional<policy::IpAddress> address_;
};

struct NameAuthorization {
  policy::Decision decision;
  std::optional<ProxyTarget> target;  // there when the decision allows
};

// Pure: decides a name that the proxy will resolve. Denies unless the policy accepts that.
NameAuthorization authorize_unresolved(const policy::EgressPolicy& policy,
                                       const policy::Endpoint& endpoint,
                                       std::optional<policy::Protocol> protocol);

// The head of the CONNECT. Holds the user's password: for the proxy's eyes only.
std::string write_connect(const policy::UpstreamProxy& proxy, const ProxyTarget& target);

// What a proxy's response to CONNECT means: kAllowed for 2xx, else one of the two reasons.
struct TunnelOutcome {
  policy::Reason reason = policy::Reason::kUpstreamProxyFailed;
  // It wants to know who asks and was not satisfied (407): to ask again, for another target, would
  // only lock the user out.
  bool unauthenticated = false;
};
// `head` ends with its empty line.
TunnelOutcome judge_connect_response(std::string_view head);

// On a socket that is connected to the proxy: asks, and reads the response to its last byte and no
// further, because a server that speaks first may be right behind it. Deadlines are the caller's:
// it closes the socket.
Async<TunnelOutcome> open_tunnel(Socket& socket, std::string request);

}  // namespace cofferdam::egressproxy
