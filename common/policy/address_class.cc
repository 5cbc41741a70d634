#include "common/policy/address_class.h"

#include <algorithm>
#include <array>
#include <vector>

#include "common/base/check.h"

namespace cofferdam::policy {
namespace {

using enum Tier;
using enum Reason;

// The first row of the firmest tier that contains an address tells its reason, so metadata comes
// before the ranges that hold it. Registries: IANA IPv4 and IPv6 special-purpose registries.
constexpr AddressRange kRanges[] = {
    // Metadata and platform services.
    {"169.254.169.254/32", kFloor, kMetadataAddress, "instance metadata",
     "AWS, GCP, Azure, OpenStack and others"},
    {"169.254.170.2/32", kFloor, kMetadataAddress, "task credentials", "AWS ECS"},
    {"169.254.170.23/32", kFloor, kMetadataAddress, "pod identity", "AWS EKS"},
    {"169.254.169.253/32", kFloor, kMetadataAddress, "platform DNS", "AWS VPC"},
    {"169.254.169.123/32", kFloor, kMetadataAddress, "platform time", "AWS VPC"},
    {"169.254.0.23/32", kFloor, kMetadataAddress, "instance metadata", "Tencent Cloud"},
    {"169.254.42.42/32", kFloor, kMetadataAddress, "instance metadata", "Scaleway"},
    {"168.63.129.16/32", kFloor, kMetadataAddress, "platform services in a public range",
     "Azure WireServer"},
    {"100.100.100.200/32", kFloor, kMetadataAddress, "instance metadata", "Alibaba Cloud"},
    {"100.100.2.136/32", kFloor, kMetadataAddress, "platform DNS", "Alibaba Cloud"},
    {"100.100.2.138/32", kFloor, kMetadataAddress, "platform DNS", "Alibaba Cloud"},
    {"100.100.100.100/32", kFloor, kMetadataAddress, "platform services", "Tailscale"},
    {"192.0.0.192/32", kFloor, kMetadataAddress, "instance metadata", "Oracle Cloud Classic"},
    {"fd00:ec2::/32", kFloor, kMetadataAddress, "instance metadata and platform services", "AWS"},
    {"fd20:ce::254/128", kFloor, kMetadataAddress, "instance metadata", "GCP"},
    {"fd00:100::100:200/128", kFloor, kMetadataAddress, "instance metadata", "Alibaba Cloud"},
    {"fd00:c1::a9fe:a9fe/128", kFloor, kMetadataAddress, "instance metadata", "Oracle Cloud"},
    {"fd00:42::42/128", kFloor, kMetadataAddress, "instance metadata", "Scaleway"},
    {"fd00:a9fe:a9fe::1/128", kFloor, kMetadataAddress, "instance metadata", "Linode"},
    {"fdaa::/16", kFloor, kMetadataAddress, "platform network", "Fly.io"},
    {"fd7a:115c:a1e0::53/128", kFloor, kMetadataAddress, "platform services", "Tailscale"},
    {"fe80::a9fe:a9fe/128", kFloor, kMetadataAddress, "instance metadata", "OpenStack"},
    // IPv4.
    {"0.0.0.0/32", kFloor, kLoopbackAddress, "unspecified; connects to loopback", "RFC 1122"},
    {"0.0.0.0/8", kFloor, kReservedAddress, "this network", "RFC 791"},
    {"10.0.0.0/8", kPolicy, kPrivateAddress, "private", "RFC 1918"},
    {"100.64.0.0/10", kPolicy, kPrivateAddress, "shared (CGNAT)", "RFC 6598"},
    {"127.0.0.0/8", kFloor, kLoopbackAddress, "loopback", "RFC 1122"},
    {"169.254.0.0/16", kFloor, kLinkLocalAddress, "link-local", "RFC 3927"},
    {"172.16.0.0/12", kPolicy, kPrivateAddress, "private", "RFC 1918"},
    {"192.0.0.0/24", kFloor, kReservedAddress, "IETF protocol assignments",
     "RFC 6890, 7335, 7600, 7723, 8155, 8880"},
    {"192.0.2.0/24", kPolicy, kPrivateAddress, "documentation (TEST-NET-1)", "RFC 5737"},
    {"192.31.196.0/24", kPolicy, kPrivateAddress, "AS112", "RFC 7535"},
    {"192.52.193.0/24", kPolicy, kPrivateAddress, "AMT", "RFC 7450"},
    {"192.88.99.0/24", kPolicy, kPrivateAddress, "6to4 relay anycast", "RFC 7526, 6751"},
    {"192.168.0.0/16", kPolicy, kPrivateAddress, "private", "RFC 1918"},
    {"192.175.48.0/24", kPolicy, kPrivateAddress, "AS112", "RFC 7534"},
    {"198.18.0.0/15", kPolicy, kPrivateAddress,
     "benchmarking; the fake addresses of some VPNs (a rule may open it)", "RFC 2544"},
    {"198.51.100.0/24", kPolicy, kPrivateAddress, "documentation (TEST-NET-2)", "RFC 5737"},
    {"203.0.113.0/24", kPolicy, kPrivateAddress, "documentation (TEST-NET-3)", "RFC 5737"},
    {"224.0.0.0/4", kFloor, kReservedAddress, "multicast", "RFC 5771"},
    {"240.0.0.0/4", kFloor, kReservedAddress, "reserved, and broadcast", "RFC 1112, 919, 8190"},
    // IPv6 outside 2000::/3: closed without being listed; rows only to say what they are.
    {"::/128", kFloor, kLoopbackAddress, "unspecified; connects to loopback", "RFC 4291"},
    {"::1/128", kFloor, kLoopbackAddress, "loopback", "RFC 4291"},
    {"::/96", kFloor, kReservedAddress, "IPv4-compatible", "RFC 4291"},
    {"::ffff:0:0:0/96", kFloor, kReservedAddress, "IPv4-translated", "RFC 2765"},
    {"64:ff9b::/96", kPolicy, kPrivateAddress, "NAT64", "RFC 6052"},
    {"64:ff9b:1::/48", kFloor, kReservedAddress, "local NAT64", "RFC 8215"},
    {"100::/64", kFloor, kReservedAddress, "discard-only", "RFC 6666"},
    {"100:0:0:1::/64", kFloor, kReservedAddress, "dummy prefix", "RFC 9780"},
    {"200::/7", kFloor, kReservedAddress, "NSAP", "RFC 4048"},
    {"5f00::/16", kFloor, kReservedAddress, "segment routing", "RFC 9602"},
    {"fc00::/7", kPolicy, kPrivateAddress, "unique local", "RFC 4193"},
    {"fe80::/10", kFloor, kLinkLocalAddress, "link-local", "RFC 4291"},
    {"fec0::/10", kFloor, kReservedAddress, "site-local", "RFC 3879"},
    {"ff00::/8", kFloor, kReservedAddress, "multicast", "RFC 4291"},
    // IPv6 inside 2000::/3.
    {"2001::/32", kFloor, kReservedAddress, "Teredo", "RFC 4380"},
    {"2001:2::/48", kPolicy, kPrivateAddress, "benchmarking", "RFC 5180"},
    {"2001:3::/32", kPolicy, kPrivateAddress, "AMT", "RFC 7450"},
    {"2001:4:112::/48", kPolicy, kPrivateAddress, "AS112", "RFC 7535"},
    {"2001:10::/28", kFloor, kReservedAddress, "ORCHID", "RFC 4843"},
    {"2001:20::/28", kFloor, kReservedAddress, "ORCHIDv2", "RFC 7343"},
    {"2001:30::/28", kFloor, kReservedAddress, "drone remote ID", "RFC 9374"},
    {"2001::/23", kPolicy, kPrivateAddress, "IETF protocol assignments", "RFC 2928"},
    {"2001:db8::/32", kPolicy, kPrivateAddress, "documentation", "RFC 3849"},
    {"2002::/16", kFloor, kReservedAddress, "6to4", "RFC 3056"},
    {"2620:4f:8000::/48", kPolicy, kPrivateAddress, "AS112", "RFC 7534"},
    {"3ffe::/16", kPolicy, kPrivateAddress, "6bone", "RFC 3701"},
    {"3fff::/20", kPolicy, kPrivateAddress, "documentation", "RFC 9637"},
};

struct Row {
  Cidr cidr;
  const AddressRange* range;
};

Cidr cidr_of(std::string_view text) {
  auto cidr = Cidr::parse(text);
  CHECK(cidr.ok());
  return *cidr;
}

const std::vector<Row>& rows() {
  static const std::vector<Row> rows = [] {
    std::vector<Row> made;
    for (const AddressRange& range : kRanges) made.push_back({cidr_of(range.cidr), &range});
    return made;
  }();
  return rows;
}

AddressClass classify_itself(const IpAddress& address) {
  AddressClass found{kPublic, kAllowed, "public"};
  for (const Row& row : rows()) {
    if (row.range->tier <= found.tier || !row.cidr.contains(address)) continue;
    found = {row.range->tier, row.range->reason, row.range->what};
    if (found.tier == kFloor) return found;
  }
  static const Cidr global_unicast = cidr_of("2000::/3");
  if (found.tier == kPublic && !address.is_v4() && !global_unicast.contains(address)) {
    return {kFloor, kReservedAddress, "outside 2000::/3"};
  }
  return found;
}

const Nat64Prefix* prefix_of(const IpAddress& address, std::span<const Nat64Prefix> nat64) {
  for (const Nat64Prefix& prefix : nat64) {
    if (prefix.contains(address)) return &prefix;
  }
  return nullptr;
}

// An address in an operator's NAT64 prefix.
AddressClass classify_translated(const AddressClass& itself,
                                 const std::optional<IpAddress>& inner) {
  const bool untouchable = itself.tier == kFloor && (itself.reason == kMetadataAddress ||
                                                     itself.reason == kLoopbackAddress ||
                                                     itself.reason == kLinkLocalAddress);
  if (untouchable) return itself;
  if (!inner) return {kFloor, kReservedAddress, "NAT64 with bits that must be zero"};
  return classify_itself(*inner);
}

constexpr std::string_view kMetadataNames[] = {
    "instance-data",
    "instance-data.ec2.internal",
    "metadata.google.internal",
    "metadata",
    "metadata.platformequinix.com",
    "api.metadata.cloud.ibm.com",
    "metadata.tencentyun.com",
    "_api.internal",
    "rancher-metadata",
};

// Names of the machine itself and its helpers.
constexpr std::string_view kHostNames[] = {"host.docker.internal", "gateway.docker.internal",
                                           "host.containers.internal", "host.lima.internal"};

// RFC 6761, 6762, 7686, 8375; ICANN 2024 (internal); Kubernetes.
constexpr std::string_view kReservedSuffixes[] = {
    "local", "internal",     "home.arpa", "onion", "invalid",
    "test",  "in-addr.arpa", "ip6.arpa",  "svc",   "cluster.local",
};

bool is_at_or_below(std::string_view name, std::string_view parent) {
  return name == parent || (name.size() > parent.size() && name.ends_with(parent) &&
                            name[name.size() - parent.size() - 1] == '.');
}

}  // namespace

std::optional<IpAddress> embedded_v4(const IpAddress& address, std::span<const Nat64Prefix> nat64) {
  if (address.is_v4()) return std::nullopt;
  if (const Nat64Prefix* prefix = prefix_of(address, nat64)) return prefix->carried(address);
  const auto bytes = address.v6_bytes();
  const auto at = [&bytes](std::size_t i) {
    return IpAddress::from_v4({bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]});
  };
  static const Cidr compatible = cidr_of("::/96");
  static const Cidr translated = cidr_of("::ffff:0:0:0/96");
  static const Cidr well_known = cidr_of("64:ff9b::/96");
  static const Cidr six_to_four = cidr_of("2002::/16");
  static const Cidr teredo = cidr_of("2001::/32");
  for (const Cidr* prefix : {&compatible, &translated, &well_known}) {
    if (prefix->contains(address)) return at(12);
  }
  if (six_to_four.contains(address)) return at(2);
  if (teredo.contains(address)) {
    const auto flip = [&bytes](std::size_t i) { return static_cast<std::uint8_t>(~bytes[i]); };
    return IpAddress::from_v4({flip(12), flip(13), flip(14), flip(15)});
  }
  const bool isatap = (bytes[8] == 0x00 || bytes[8] == 0x02) && bytes[9] == 0x00 &&
                      bytes[10] == 0x5e && bytes[11] == 0xfe;
  if (isatap) return at(12);
  return std::nullopt;
}

AddressClass classify(const IpAddress& address, std::span<const Nat64Prefix> nat64) {
  const AddressClass itself = classify_itself(address);
  const auto inner = embedded_v4(address, nat64);
  if (prefix_of(address, nat64) != nullptr) return classify_translated(itself, inner);
  if (!inner || itself.reason == kLoopbackAddress) return itself;
  const AddressClass carried = classify_itself(*inner);
  return carried.tier >= itself.tier ? carried : itself;
}

bool is_open(const IpAddress& address, std::span<const Cidr> opened,
             std::span<const Nat64Prefix> nat64) {
  const auto opens = [opened](Tier tier, const IpAddress& one) {
    if (tier != Tier::kPolicy) return tier == Tier::kPublic;
    return std::any_of(opened.begin(), opened.end(),
                       [&one](const Cidr& cidr) { return cidr.contains(one); });
  };
  const auto inner = embedded_v4(address, nat64);
  if (prefix_of(address, nat64) != nullptr) {
    return inner && opens(classify(address, nat64).tier, *inner);
  }
  return opens(classify_itself(address).tier, address) &&
         (!inner || opens(classify_itself(*inner).tier, *inner));
}

std::span<const AddressRange> address_ranges() {
  return kRanges;
}

std::optional<Reason> special_name(const HostName& name) {
  const std::string& text = name.text();
  if (std::find(std::begin(kMetadataNames), std::end(kMetadataNames), text) !=
      std::end(kMetadataNames)) {
    return kMetadataAddress;
  }
  if (is_at_or_below(text, "localhost")) return kLoopbackAddress;
  if (std::find(std::begin(kHostNames), std::end(kHostNames), text) != std::end(kHostNames)) {
    return kHostAddress;
  }
  for (const std::string_view suffix : kReservedSuffixes) {
    if (is_at_or_below(text, suffix)) return kNoRule;
  }
  if (name.label_count() == 1) return kNoRule;
  return std::nullopt;
}

}  // namespace cofferdam::policy
