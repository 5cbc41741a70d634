// Pins: which names an address was given to the workload for. The one source of truth that turns a
// redirected connection's address back into names. Entries live as long as the sandbox, far past
// the time that the answer was good for, because clients keep addresses; under pressure the least
// recently used go: addresses over all, names of one address, addresses of one name, and both
// together: who answers for a wildcard could make each address have many long names.
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
  struct Limits {
    std::size_t addresses = 65536;
    std::size_t names_of_address = 64;
    // So that a name whose servers rotate cannot push out those of other names.
    std::size_t addresses_of_name = 4096;
    std::size_t pairs = 131072;  // of an address and a name
  };
  Pins() = default;
  explicit Pins(const Limits& limits) : limits_(limits) {}

  // Only for addresses that were checked for this name.
  void pin(const policy::IpAddress& address, const policy::HostName& name);
  // The newest name first; empty for an address that was never given out.
  std::vector<policy::HostName> names(const policy::IpAddress& address);
  // Whether the address was given out for this name.
  bool holds(const policy::IpAddress& address, const policy::HostName& name) const;
  std::size_t size() const { return entries_.size(); }
  std::size_t pairs() const { return pairs_; }

 private:
  using Addresses = std::list<policy::IpAddress>;  // most recent first
  struct Named {
    policy::HostName name;
    Addresses::iterator place;  // of the address in the name's list
  };
  struct Entry {
    std::vector<Named> names;  // newest last
    Addresses::iterator use;
  };
  using Entries = std::map<policy::IpAddress, Entry>;

  Entries::iterator entry(const policy::IpAddress& address);
  void unpin(const policy::IpAddress& address, const policy::HostName& name);
  void forget(Entries::iterator entry);
  void take_from_name(const Named& named);

  Limits limits_;
  std::size_t pairs_ = 0;
  Entries entries_;
  Addresses uses_;  // most recent first
  std::map<policy::HostName, Addresses> names_;
};

}  // namespace cofferdam::egressproxy
