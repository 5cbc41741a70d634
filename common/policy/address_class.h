// What kind of address an address is, and whether a rule may open it. Pure; the table is data.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "common/policy/address.h"
#include "common/policy/host_name.h"
#include "common/policy/nat64.h"
#include "common/policy/reason.h"

namespace cofferdam::policy {

// How firmly a class is closed.
enum class Tier : std::uint8_t {
  kPublic,  // open to every rule
  kPolicy,  // opened only by a rule's own =CIDR
  kFloor,   // opened by nothing
};

// One row of the table of special-purpose ranges.
struct AddressRange {
  std::string_view cidr;
  Tier tier;
  Reason reason;
  std::string_view what;
  std::string_view source;
};

struct AddressClass {
  Tier tier = Tier::kFloor;
  Reason reason = Reason::kReservedAddress;  // kAllowed when the tier is kPublic
  std::string_view what = "not classified";  // for events and messages, never for replies
};

// The rules of evaluation: IPv4 is public unless listed; IPv6 is closed unless it lies in 2000::/3
// and is not listed; an address that carries an IPv4 address is judged as both, the firmer wins. In
// a prefix of `nat64` the IPv4 address alone counts, unless the address itself is of the loopback,
// link-local or metadata floor.
AddressClass classify(const IpAddress& address, std::span<const Nat64Prefix> nat64 = {});

// Whether a rule that opens `opened` permits the address: public, or in the policy tier and inside
// one of the ranges; both the address and the IPv4 address that it carries.
bool is_open(const IpAddress& address, std::span<const Cidr> opened,
             std::span<const Nat64Prefix> nat64 = {});

// The IPv4 address that an IPv6 address carries: IPv4-compatible, translated (SIIT), NAT64
// 64:ff9b::/96, 6to4, Teredo (the client's), ISATAP; in a prefix of `nat64` by that prefix.
std::optional<IpAddress> embedded_v4(const IpAddress& address,
                                     std::span<const Nat64Prefix> nat64 = {});

// Every row, for tests and for documentation.
std::span<const AddressRange> address_ranges();

// Names that are never looked up unless a rule lists them exactly: localhost, *.local, *.internal,
// the metadata services' names, single labels, … Nothing for an ordinary name.
std::optional<Reason> special_name(const HostName& name);

}  // namespace cofferdam::policy
