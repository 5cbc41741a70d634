#include "egressproxy/stand_ins.h"

namespace cofferdam::egressproxy {

std::optional<policy::IpAddress> StandIns::address_of(const policy::HostName& name) {
  auto found = numbers_.find(name);
  if (found == numbers_.end()) {
    if (numbers_.size() >= max_names_) return std::nullopt;
    found = numbers_.emplace(name, numbers_.size() + 1).first;
  }
  const std::size_t number = found->second;
  return policy::IpAddress::from_v4({198, 18, static_cast<std::uint8_t>(number >> 8U),
                                     static_cast<std::uint8_t>(number & 0xffU)});
}

}  // namespace cofferdam::egressproxy
