#include "egressproxy/pins.h"

#include <algorithm>

namespace cofferdam::egressproxy {

// The address's entry, made when it is new, and marked as used now.
Pins::Entries::iterator Pins::entry(const policy::IpAddress& address) {
  const auto found = entries_.find(address);
  if (found != entries_.end()) {
    uses_.splice(uses_.begin(), uses_, found->second.use);
    return found;
  }
  if (entries_.size() >= limits_.addresses) forget(entries_.find(uses_.back()));
  uses_.push_front(address);
  return entries_.emplace(address, Entry{{}, uses_.begin()}).first;
}

void Pins::take_from_name(const Named& named) {
  const auto list = names_.find(named.name);
  list->second.erase(named.place);
  if (list->second.empty()) names_.erase(list);
  --pairs_;
}

void Pins::forget(Entries::iterator entry) {
  for (const Named& named : entry->second.names) take_from_name(named);
  uses_.erase(entry->second.use);
  entries_.erase(entry);
}

void Pins::unpin(const policy::IpAddress& address, const policy::HostName& name) {
  const auto found = entries_.find(address);
  auto& names = found->second.names;
  const auto at = std::find_if(names.begin(), names.end(),
                               [&name](const Named& one) { return one.name == name; });
  take_from_name(*at);
  names.erase(at);
  if (names.empty()) forget(found);
}

void Pins::pin(const policy::IpAddress& address, const policy::HostName& name) {
  auto& names = entry(address)->second.names;
  const auto known = std::find_if(names.begin(), names.end(),
                                  [&name](const Named& one) { return one.name == name; });
  if (known != names.end()) {
    Addresses& list = names_.find(name)->second;
    list.splice(list.begin(), list, known->place);
    std::rotate(known, known + 1, names.end());
    return;
  }
  if (names.size() >= limits_.names_of_address) {
    take_from_name(names.front());
    names.erase(names.begin());
  }
  Addresses& list = names_[name];
  list.push_front(address);
  names.push_back({name, list.begin()});
  ++pairs_;
  while (pairs_ > limits_.pairs && uses_.size() > 1) forget(entries_.find(uses_.back()));
  if (list.size() > limits_.addresses_of_name) {
    const policy::IpAddress oldest = list.back();
    unpin(oldest, name);
  }
}

std::vector<policy::HostName> Pins::names(const policy::IpAddress& address) {
  if (!entries_.contains(address)) return {};
  const auto& names = entry(address)->second.names;
  std::vector<policy::HostName> newest_first;
  newest_first.reserve(names.size());
  for (auto one = names.rbegin(); one != names.rend(); ++one) newest_first.push_back(one->name);
  return newest_first;
}

bool Pins::holds(const policy::IpAddress& address, const policy::HostName& name) const {
  const auto found = entries_.find(address);
  if (found == entries_.end()) return false;
  return std::any_of(found->second.names.begin(), found->second.names.end(),
                     [&name](const Named& one) { return one.name == name; });
}

}  // namespace cofferdam::egressproxy
