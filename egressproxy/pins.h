// Pins: which names an address was given to the workload for. The one source of truth that turns a
// redirected connection's address back into names. Entries live as long as the sandbox; under
// pressure the least recently used address goes.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <vector>

#include "common/policy/address.h"
#include "common/policy/host_name.h"

namespace cofferdam::egressproxy {

class Pins final {
 public:
  static constexpr std::size_t kMaxAddresses = 65536;
  static constexpr std::size_t kMaxNames = 64;  // of one address; the oldest goes

  explicit Pins(std::size_t max_addresses = kMaxAddresses) : max_addresses_(max_addresses) {}

  // Only for addresses that were checked for this name.
  void pin(const policy::IpAddress& address, const policy::HostName& name);
  // The newest name first; empty for an address that was never given out.
  std::vector<policy::HostName> names(const policy::IpAddress& address);
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::vector<policy::HostName> names;  // newest last
    std::list<policy::IpAddress>::iterator use;
  };
  std::size_t max_addresses_;
  std::map<policy::IpAddress, Entry> entries_;
  std::list<policy::IpAddress> uses_;  // most recent first
};

}  // namespace cofferdam::egressproxy
