#include "egressproxy/host_addresses.h"

#include "common/os/local_routes.h"

namespace cofferdam::egressproxy {

Result<std::unique_ptr<HostAddresses>> HostAddresses::open(asio::io_context& context) {
  // Watch first, read second: what changes in between is seen.
  TRY_ASSIGN(os::UniqueFd netlink, os::watch_interface_addresses());
  std::unique_ptr<HostAddresses> addresses(new HostAddresses(context, netlink.release()));
  TRY(addresses->refresh());
  return addresses;
}

Status HostAddresses::refresh() {
  TRY_ASSIGN(const std::vector<os::SocketAddress> interfaces, os::interface_addresses());
  TRY_ASSIGN(const std::vector<os::SocketAddress> routes, os::local_host_routes());
  std::set<policy::IpAddress> read;
  for (const os::SocketAddress& address : interfaces) read.insert(from_os(address));
  for (const os::SocketAddress& address : routes) read.insert(from_os(address));
  current_ = std::move(read);
  return {};
}

Async<Status> HostAddresses::watch() {
  while (true) {
    const auto [error] =
        co_await netlink_.async_wait(asio::posix::stream_descriptor::wait_read, kNoThrow);
    if (error) co_return Error("interface addresses: " + error.message());
    os::drain_netlink(netlink_.native_handle());
    if (auto status = refresh(); !status.ok()) co_return status;
  }
}

}  // namespace cofferdam::egressproxy
