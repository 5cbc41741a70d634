#include "egressproxy/host_addresses.h"

#include <algorithm>

#include "common/os/local_routes.h"
#include "common/policy/address_class.h"

namespace cofferdam::egressproxy {

Result<std::unique_ptr<HostAddresses>> HostAddresses::open(asio::io_context& context) {
  // Watch first, read second: what changes in between is seen.
  TRY_ASSIGN(os::UniqueFd netlink, os::watch_interface_addresses());
  std::unique_ptr<HostAddresses> addresses(new HostAddresses(context, netlink.release()));
  TRY(addresses->refresh());
  return addresses;
}

// Reading takes a descriptor, which is there also when connections have taken every other one.
Status HostAddresses::refresh() {
  (void)spare_.give_up_one();
  Status done = look();
  spare_.refill();
  return done;
}

Status HostAddresses::look() {
  TRY_ASSIGN(const std::vector<os::SocketAddress> interfaces, os::interface_addresses());
  TRY_ASSIGN(const std::vector<os::LocalRoute> routes, os::local_routes());
  std::set<policy::IpAddress> read;
  for (const os::SocketAddress& address : interfaces) read.insert(from_os(address));
  std::vector<policy::Cidr> ranges;
  for (const os::LocalRoute& route : routes) {
    const policy::IpAddress address = from_os(route.address);
    if (route.length == (route.address.v6 ? 128 : 32)) {
      read.insert(address);
    } else if (address.is_v4() != route.address.v6) {
      ranges.push_back(policy::Cidr::around(address, route.length));
    }
  }
  current_ = std::move(read);
  ranges_ = std::move(ranges);
  return {};
}

std::set<policy::IpAddress> HostAddresses::among(std::span<const policy::IpAddress> addresses,
                                                 std::span<const policy::Nat64Prefix> nat64) const {
  std::set<policy::IpAddress> own;
  const auto consider = [this, &own](const policy::IpAddress& one) {
    const auto holds = [&one](const policy::Cidr& range) { return range.contains(one); };
    if (current_.contains(one) || std::any_of(ranges_.begin(), ranges_.end(), holds)) {
      own.insert(one);
    }
  };
  for (const policy::IpAddress& address : addresses) {
    consider(address);
    if (const auto inner = policy::embedded_v4(address, nat64)) consider(*inner);
  }
  return own;
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
