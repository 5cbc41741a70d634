// HostAddresses: the addresses of this machine's own interfaces, and what else the kernel delivers
// to itself (anycast, broadcast), kept current by netlink. The host itself is never a place that a
// workload may reach.
#pragma once

#include <set>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "common/policy/address.h"
#include "common/policy/nat64.h"
#include "egressproxy/net.h"
#include "egressproxy/spare_descriptors.h"

namespace cofferdam::egressproxy {

class HostAddresses final {
 public:
  // Reads the addresses and starts to watch; an error when either cannot be done.
  static Result<std::unique_ptr<HostAddresses>> open(asio::io_context& context);
  // Runs until the context ends; a failure to read the addresses again ends the process's service.
  Async<Status> watch();
  const std::set<policy::IpAddress>& current() const { return current_; }
  // Which of these, or of the IPv4 addresses that they carry, are this machine's: single addresses
  // and ranges that its routes make local.
  std::set<policy::IpAddress> among(std::span<const policy::IpAddress> addresses,
                                    std::span<const policy::Nat64Prefix> nat64) const;

 private:
  HostAddresses(asio::io_context& context, int netlink)
      : netlink_(context, netlink), spare_(netlink, 1) {}
  Status refresh();
  Status look();
  asio::posix::stream_descriptor netlink_;
  SpareDescriptors spare_;
  std::set<policy::IpAddress> current_;
  std::vector<policy::Cidr> ranges_;
};

}  // namespace cofferdam::egressproxy
