// Dialer: the only place that connects, and only to what was authorized.
#pragma once

#include <optional>
#include <vector>

#include "common/policy/reason.h"
#include "egressproxy/authorize.h"
#include "egressproxy/socket.h"
#include "egressproxy/upstream_proxy.h"

namespace cofferdam::egressproxy {

struct Dialled {
  std::optional<Socket> socket;
  std::optional<policy::IpAddress> address;                // that was asked for
  policy::Reason reason = policy::Reason::kConnectFailed;  // why there is no socket
  bool timed_out = false;
};

// Who may send the first bytes. Where only we can, one segment fewer is needed.
enum class FirstWord : std::uint8_t { kEither, kOurs };

class Dialer final {
 public:
  static constexpr milliseconds kStagger{250};
  static constexpr milliseconds kTotal{10000};
  // Through a proxy, which needs a while for its own connection.
  static constexpr milliseconds kProxyStagger{2500};
  static constexpr milliseconds kProxyTotal{20000};
  static constexpr std::size_t kMaxProxyTargets = 4;

  // Happy eyeballs (RFC 8305) over the given endpoints and nothing else: the first, then one more
  // every kStagger or as soon as one has failed, families interleaved. The peer's address is
  // compared with what was dialled.
  Async<Dialled> dial(std::vector<AuthorizedEndpoint> endpoints, FirstWord first);

  // The same race over tunnels of the upstream proxy: each target at each of the proxy's endpoints,
  // kMaxProxyTargets targets at most.
  Async<Dialled> dial_through(const policy::UpstreamProxy& proxy,
                              std::vector<ProxyEndpoint> endpoints,
                              std::vector<ProxyTarget> targets);
};

// One IPv6, one IPv4, …, beginning with the family of the first.
std::vector<AuthorizedEndpoint> interleave(std::vector<AuthorizedEndpoint> endpoints);

}  // namespace cofferdam::egressproxy
