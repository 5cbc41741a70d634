// The upstream proxy that a user names: the only way out of some networks. Pure.
//
// It is the user's own choice and usually private, so its address is judged by rules of its own:
// exactly this endpoint is exempt, and only for the proxy's CONNECT. Nothing of it is a rule: a
// workload that asks for the proxy's address is decided like any other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/policy/host_name.h"
#include "common/policy/reason.h"

namespace cofferdam::policy {

struct UpstreamProxy {
  // What a CONNECT carries: the address that was checked here, or the name, which the proxy
  // resolves, so that nobody checks an address.
  enum class Connect : std::uint8_t { kAddress, kName };
  Endpoint endpoint;
  std::string authorization;  // value of Proxy-Authorization, "Basic …"; empty without user
  Connect connect = Connect::kAddress;

  // "http://HOST:PORT": never the user information.
  std::string to_text() const { return "http://" + endpoint.text(); }
  bool operator==(const UpstreamProxy&) const = default;
};

// "http://[USER:PASSWORD@]HOST:PORT[/]", USER and PASSWORD percent-encoded where they must be (RFC
// 3986 3.2.1). No other scheme, no path. Errors never hold the user information.
Result<UpstreamProxy> parse_upstream_proxy(std::string_view url);

// The URL without what stands before the '@': for everything that is shown.
std::string without_user(std::string_view url);

// May the proxy be dialled at this address? `literal`: the user wrote this very address. Metadata,
// unspecified, multicast and reserved addresses never; loopback, link-local and this host only when
// they were written as a literal, so that no DNS answer leads there; public and private ones
// always.
Reason refuse_proxy_address(const IpAddress& address, bool literal, bool own);

}  // namespace cofferdam::policy
