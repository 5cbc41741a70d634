#include "common/policy/nat64.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/policy/address_class.h"

namespace cofferdam::policy {
namespace {

constexpr std::size_t kZeroByte = 8;  // bits 64..71

bool lies_in(const Cidr& inner, std::string_view outer_text) {
  const auto outer = Cidr::parse(outer_text);
  CHECK(outer.ok());
  return inner.length() >= outer->length() && outer->contains(inner.address());
}

}  // namespace

Result<Nat64Prefix> Nat64Prefix::parse(std::string_view text) {
  TRY_ASSIGN(const Cidr range, Cidr::parse(text));
  const Error wrong("not a NAT64 prefix (RFC 6052): '" + std::string(text) + "'");
  if (range.address().is_v4()) return wrong.context("an IPv4 range");
  constexpr int kLengths[] = {32, 40, 48, 56, 64, 96};
  if (std::find(std::begin(kLengths), std::end(kLengths), range.length()) == std::end(kLengths)) {
    return wrong.context("the length is 32, 40, 48, 56, 64 or 96");
  }
  if (range.length() == 96 && range.address().v6_bytes()[kZeroByte] != 0) {
    return wrong.context("bits 64 to 71 are not zero");
  }
  // Nobody's translator is a range that means something else.
  const bool well_known = range == *Cidr::parse("64:ff9b::/96");
  const bool local = lies_in(range, "64:ff9b:1::/48");
  const bool usable = (lies_in(range, "2000::/3") || lies_in(range, "fc00::/7")) &&
                      classify(range.address()).tier != Tier::kFloor;
  if (!well_known && !local && !usable) return wrong.context("a range that has another meaning");
  return Nat64Prefix(range);
}

std::optional<IpAddress> Nat64Prefix::carried(const IpAddress& address) const {
  if (!contains(address)) return std::nullopt;
  const auto bytes = address.v6_bytes();
  if (bytes[kZeroByte] != 0) return std::nullopt;
  std::array<std::uint8_t, 4> four{};
  auto at = static_cast<std::size_t>(range_.length() / 8);
  for (std::uint8_t& byte : four) {
    if (at == kZeroByte) ++at;
    byte = bytes[at++];
  }
  return IpAddress::from_v4(four);
}

}  // namespace cofferdam::policy
