// What sockets know about themselves, and the addresses of this machine's interfaces.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/os/unique_fd.h"

namespace cofferdam::os {

// An IPv4 or IPv6 socket address. IPv4 has its address in the first four bytes.
struct SocketAddress {
  bool v6 = false;
  std::array<std::uint8_t, 16> address{};
  std::uint16_t port = 0;
  std::uint32_t scope = 0;  // IPv6 zone
  bool is_loopback() const;
  bool operator==(const SocketAddress&) const = default;
};

enum class SocketKind : std::uint8_t { kStream, kDatagram, kOther };

// What a socket that somebody handed over really is.
struct SocketFacts {
  SocketKind kind = SocketKind::kOther;
  bool listening = false;            // SO_ACCEPTCONN
  SocketAddress local;               // getsockname(2)
  std::uint64_t network_cookie = 0;  // SO_NETNS_COOKIE: which network namespace it belongs to
};
// An error for anything that is not an AF_INET or AF_INET6 socket.
Result<SocketFacts> socket_facts(int fd);

// Whether `fd` is a listening Unix stream socket.
bool is_listening_unix(int fd);
// A listening Unix stream socket at `name` in `directory`, where no other is, for the owner alone
// (0600); and a connection to one, whose reads and writes fail after `patience`. The directory's
// own path may be longer than a socket's address can be.
Result<UniqueFd> listen_unix(const std::filesystem::path& directory, std::string_view name);
Result<UniqueFd> connect_unix(const std::filesystem::path& directory, std::string_view name,
                              std::chrono::milliseconds patience);
// The same for packets (SOCK_SEQPACKET, fd_passing.h). The listening socket and what accept_packets
// gives never block; EAGAIN when nobody waits.
Result<UniqueFd> listen_unix_packets(const std::filesystem::path& directory, std::string_view name);
Result<UniqueFd> connect_unix_packets(const std::filesystem::path& directory,
                                      std::string_view name);
Result<UniqueFd> accept_packets(int listener);
// Who connected this Unix socket (SO_PEERCRED, unix(7)), as this user namespace knows it.
Result<std::uint32_t> peer_uid(int fd);

// The destination before netfilter redirected the connection (SO_ORIGINAL_DST in either family);
// ENOENT when nothing redirected it.
Result<SocketAddress> original_destination(int fd, bool v6);

// Who is at the other end (getpeername(2)); none while it is not connected.
std::optional<SocketAddress> peer_address(int fd);

// getifaddrs(3): every IPv4 and IPv6 address of every interface of this network namespace.
Result<std::vector<SocketAddress>> interface_addresses();

// A netlink socket that becomes readable when an address comes or goes (rtnetlink(7)).
Result<UniqueFd> watch_interface_addresses();
// Reads away what is there; an overrun counts as news too.
void drain_netlink(int fd);

// Raises the soft limit of descriptors to the hard one; gives the new one.
std::uint64_t raise_descriptor_limit();

}  // namespace cofferdam::os
