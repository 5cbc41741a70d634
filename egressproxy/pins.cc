#include "egressproxy/pins.h"

#include <algorithm>

namespace cofferdam::egressproxy {

void Pins::pin(const policy::IpAddress& address, const policy::HostName& name) {
  auto found = entries_.find(address);
  if (found == entries_.end()) {
    if (entries_.size() >= max_addresses_) {
      entries_.erase(uses_.back());
      uses_.pop_back();
    }
    uses_.push_front(address);
    found = entries_.emplace(address, Entry{{}, uses_.begin()}).first;
  } else {
    uses_.splice(uses_.begin(), uses_, found->second.use);
  }
  auto& names = found->second.names;
  std::erase(names, name);
  if (names.size() >= kMaxNames) names.erase(names.begin());
  names.push_back(name);
}

std::vector<policy::HostName> Pins::names(const policy::IpAddress& address) {
  const auto found = entries_.find(address);
  if (found == entries_.end()) return {};
  uses_.splice(uses_.begin(), uses_, found->second.use);
  return {found->second.names.rbegin(), found->second.names.rend()};
}

}  // namespace cofferdam::egressproxy
