// NAT64 prefixes that the operator names (RFC 6052): where IPv6 addresses stand for IPv4 ones, and
// what they stand for is what is judged. Without one, 64:ff9b::/96 is an address range like others.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/policy/address.h"

namespace cofferdam::policy {

class Nat64Prefix final {
 public:
  // "64:ff9b::/96" or an operator's own: /32, /40, /48, /56, /64 or /96, inside 2000::/3, fc00::/7
  // or the local-use 64:ff9b:1::/48 (RFC 8215). Bits 64..71 of a /96 are zero.
  static Result<Nat64Prefix> parse(std::string_view text);

  bool contains(const IpAddress& address) const { return range_.contains(address); }
  // The IPv4 address that `address` stands for (RFC 6052 2.2; the suffix is ignored). Nothing when
  // it is not in the prefix or when its bits 64..71 are not zero.
  std::optional<IpAddress> carried(const IpAddress& address) const;
  std::string to_text() const { return range_.to_text(); }
  bool operator==(const Nat64Prefix&) const = default;

 private:
  explicit Nat64Prefix(const Cidr& range) : range_(range) {}
  Cidr range_;
};

}  // namespace cofferdam::policy
