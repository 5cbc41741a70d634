#include "egressproxy/gate.h"

#include <boost/asio/ip/v6_only.hpp>

#include "common/os/pipes.h"

namespace cofferdam::egressproxy {
namespace {

Error gate_error(int fd, const std::string& why) {
  return Error("gate descriptor " + std::to_string(fd) + ": " + why);
}

Result<GateSocket> adopt(asio::io_context& context, int fd, const os::SocketFacts& facts) {
  GateSocket socket;
  TRY_ASSIGN(socket.role, role_of(facts));
  socket.v6 = facts.local.v6;
  TRY(os::set_cloexec(fd, true));
  error_code error;
  if (facts.kind == os::SocketKind::kStream) {
    socket.acceptor.emplace(context);
    socket.acceptor->assign(socket.v6 ? tcp::v6() : tcp::v4(), fd, error);
    if (!error) socket.acceptor->non_blocking(true, error);
    if (!error)
      socket.acceptor->set_option(tcp::no_delay(true), error);  // accepted ones inherit it
  } else {
    socket.datagrams.emplace(context);
    socket.datagrams->assign(socket.v6 ? udp::v6() : udp::v4(), fd, error);
    if (!error) socket.datagrams->non_blocking(true, error);
  }
  if (error) return Error(error.message());
  return socket;
}

Result<GateSocket> listen_tcp(asio::io_context& context, const ListenAt& at) {
  GateSocket socket;
  socket.role = at.role;
  socket.v6 = !at.address.is_v4();
  const tcp::endpoint endpoint(to_asio(at.address), at.port);
  socket.acceptor.emplace(context);
  error_code error;
  socket.acceptor->open(endpoint.protocol(), error);
  if (!error) socket.acceptor->set_option(tcp::acceptor::reuse_address(true), error);
  if (!error && socket.v6) socket.acceptor->set_option(asio::ip::v6_only(true), error);
  if (!error) socket.acceptor->set_option(tcp::no_delay(true), error);  // accepted ones inherit it
  if (!error) socket.acceptor->bind(endpoint, error);
  if (!error) socket.acceptor->listen(asio::socket_base::max_listen_connections, error);
  if (error) return Error("listen on " + at.address.to_text() + ": " + error.message());
  return socket;
}

Result<GateSocket> listen_udp(asio::io_context& context, const ListenAt& at) {
  GateSocket socket;
  socket.role = at.role;
  socket.v6 = !at.address.is_v4();
  const udp::endpoint endpoint(to_asio(at.address), at.port);
  socket.datagrams.emplace(context);
  error_code error;
  socket.datagrams->open(endpoint.protocol(), error);
  if (!error && socket.v6) socket.datagrams->set_option(asio::ip::v6_only(true), error);
  if (!error) socket.datagrams->bind(endpoint, error);
  if (error) return Error("listen on " + at.address.to_text() + ": " + error.message());
  return socket;
}

}  // namespace

Result<Role> role_of(const os::SocketFacts& facts) {
  if (!facts.local.is_loopback()) return Error("not on loopback");
  const std::uint16_t port = facts.local.port;
  if (facts.kind == os::SocketKind::kDatagram) {
    if (port == kDnsPort) return Role::kDns;
    return Error("a datagram socket that is not on port 53");
  }
  if (facts.kind != os::SocketKind::kStream) return Error("neither a stream nor a datagram socket");
  if (!facts.listening) return Error("a stream socket that does not listen");
  if (port == kDnsPort) return Role::kDns;
  if (port == kExplicitPort) return Role::kExplicit;
  if (port == kTransparentPort) return Role::kTransparent;
  return Error("a port that the gate does not have: " + std::to_string(port));
}

Result<std::vector<GateSocket>> adopt_gate(asio::io_context& context, const std::vector<int>& fds) {
  std::vector<GateSocket> sockets;
  std::optional<std::uint64_t> cookie;
  for (const int fd : fds) {
    const auto facts = os::socket_facts(fd);
    if (!facts) return gate_error(fd, facts.error().message());
    if (cookie.value_or(facts->network_cookie) != facts->network_cookie) {
      return gate_error(fd, "another network namespace than the others'");
    }
    cookie = facts->network_cookie;
    auto socket = adopt(context, fd, *facts);
    if (!socket) return gate_error(fd, socket.error().message());
    sockets.push_back(std::move(*socket));
  }
  return sockets;
}

Result<std::vector<GateSocket>> open_gate(asio::io_context& context,
                                          const std::vector<ListenAt>& listen) {
  std::vector<GateSocket> sockets;
  for (const ListenAt& at : listen) {
    TRY_ASSIGN(GateSocket stream, listen_tcp(context, at));
    sockets.push_back(std::move(stream));
    if (at.role != Role::kDns) continue;
    TRY_ASSIGN(GateSocket datagrams, listen_udp(context, at));
    sockets.push_back(std::move(datagrams));
  }
  return sockets;
}

}  // namespace cofferdam::egressproxy
