// Stand-in addresses: where the upstream proxy resolves, nobody here knows a name's address, but a
// transparent client needs one to connect to. Each allowed name gets one of 198.18.0.0/17 (RFC
// 2544; nothing is routed there), the pin table turns it back into the name, and the name goes to
// the proxy. Only for `connect: name`; everywhere else answers hold real, checked addresses.
#pragma once

#include <map>
#include <optional>

#include "common/policy/address.h"
#include "common/policy/host_name.h"

namespace cofferdam::egressproxy {

class StandIns final {
 public:
  static constexpr std::size_t kMaxNames = 32766;

  explicit StandIns(std::size_t max_names = kMaxNames) : max_names_(max_names) {}

  // Always the same one for a name. Nothing when all are given out: an address never changes its
  // name while the sandbox lives.
  std::optional<policy::IpAddress> address_of(const policy::HostName& name);

 private:
  std::size_t max_names_;
  std::map<policy::HostName, std::size_t> numbers_;
};

}  // namespace cofferdam::egressproxy
