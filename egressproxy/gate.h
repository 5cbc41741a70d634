// The gate: the listening sockets that connections come in by, checked before anything is served.
#pragma once

#include <optional>
#include <vector>

#include "egressproxy/options.h"

namespace cofferdam::egressproxy {

// One socket of the gate and what it is for.
struct GateSocket {
  Role role = Role::kExplicit;
  bool v6 = false;
  std::optional<tcp::acceptor> acceptor;  // one of the two
  std::optional<udp::socket> datagrams;
};

inline constexpr std::uint16_t kDnsPort = 53;
inline constexpr std::uint16_t kExplicitPort = 3128;
inline constexpr std::uint16_t kTransparentPort = 3129;

// What an inherited socket is for, by its own type and port; an error when it does not fit, does
// not listen or is not on loopback. Pure.
Result<Role> role_of(const os::SocketFacts& facts);

// Takes inherited sockets over. All must belong to one network namespace.
Result<std::vector<GateSocket>> adopt_gate(asio::io_context& context, const std::vector<int>& fds);

// Opens sockets of our own, without a sandbox.
Result<std::vector<GateSocket>> open_gate(asio::io_context& context,
                                          const std::vector<ListenAt>& listen);

}  // namespace cofferdam::egressproxy
