#include "common/policy/nat64.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/policy/address_class.h"
#include "common/policy/egress_policy.h"

namespace cofferdam::policy {
namespace {

// RFC 6052 section 2.4: the same IPv4 address under a prefix of each length.
TEST(Nat64, DecodesAllSixLengths) {
  struct Case {
    const char* prefix;
    const char* address;
  };
  const Case cases[] = {{"2001:db8::/32", "2001:db8:c000:221::"},
                        {"2001:db8:100::/40", "2001:db8:1c0:2:21::"},
                        {"2001:db8:122::/48", "2001:db8:122:c000:2:2100::"},
                        {"2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"},
                        {"2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"},
                        {"2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"},
                        {"64:ff9b::/96", "64:ff9b::192.0.2.33"}};
  for (const Case& c : cases) {
    const auto prefix = Nat64Prefix::parse(c.prefix);
    ASSERT_TRUE(prefix.ok()) << c.prefix << prefix.error().message();
    const auto inner = prefix->carried(*IpAddress::parse(c.address));
    ASSERT_TRUE(inner.has_value()) << c.address;
    EXPECT_EQ(inner->to_text(), "192.0.2.33") << c.prefix;
    EXPECT_FALSE(prefix->carried(*IpAddress::parse("2a00::1")).has_value());
    EXPECT_FALSE(prefix->carried(*IpAddress::parse("192.0.2.33")).has_value());
  }
}

TEST(Nat64, RefusesWhatIsNoPrefix) {
  for (const char* text : {"10.0.0.0/8",     "64:ff9b::/32",
                           "64:ff9b::/95",   "64:ff9b::/128",
                           "64:ff9b::",      "2001:db8::/33",
                           "2001:db8::/0",   "::/96",
                           "::ffff:0:0/96",  "fe80::/64",
                           "ff00::/32",      "2002::/32",
                           "2001::/32",      "fd00:ec2::/32",
                           "4000::/32",      "2001:db8:1:2:ff00::/96",
                           "2001:db8::1/96", "",
                           "nonsense",       "2001:db8::/064"}) {
    EXPECT_FALSE(Nat64Prefix::parse(text).ok()) << text;
  }
  EXPECT_TRUE(Nat64Prefix::parse("64:ff9b:1::/48").ok());
  EXPECT_TRUE(Nat64Prefix::parse("64:ff9b:1:fffe::/96").ok());
  EXPECT_TRUE(Nat64Prefix::parse("fd12:3456::/96").ok());
}

TEST(Nat64, AnAddressInAPrefixIsJudgedAsWhatItStandsFor) {
  const std::vector<Nat64Prefix> nat64 = {*Nat64Prefix::parse("64:ff9b::/96"),
                                          *Nat64Prefix::parse("2a00:64::/32"),
                                          *Nat64Prefix::parse("64:ff9b:1::/48")};
  struct Case {
    const char* address;
    Tier tier;
    Reason reason;
  };
  const Case cases[] = {{"64:ff9b::808:808", Tier::kPublic, Reason::kAllowed},
                        {"64:ff9b::a00:1", Tier::kPolicy, Reason::kPrivateAddress},
                        {"64:ff9b::7f00:1", Tier::kFloor, Reason::kLoopbackAddress},
                        {"64:ff9b::a9fe:a9fe", Tier::kFloor, Reason::kMetadataAddress},
                        {"64:ff9b::6464:64c8", Tier::kFloor, Reason::kMetadataAddress},
                        {"64:ff9b::", Tier::kFloor, Reason::kLoopbackAddress},
                        {"64:ff9b::ffff:ffff", Tier::kFloor, Reason::kReservedAddress},
                        {"2a00:64:808:808::", Tier::kPublic, Reason::kAllowed},
                        {"2a00:64:a9fe:a9fe::", Tier::kFloor, Reason::kMetadataAddress},
                        {"2a00:64:7f00:1::", Tier::kFloor, Reason::kLoopbackAddress},
                        // Bits 64 to 71 must be zero.
                        {"2a00:64:808:808:ff00::", Tier::kFloor, Reason::kReservedAddress},
                        {"64:ff9b:1:808:8:800::", Tier::kPublic, Reason::kAllowed},
                        {"64:ff9b:1:a9fe:a9:fe00::", Tier::kFloor, Reason::kMetadataAddress},
                        // Outside every prefix nothing changes.
                        {"64:ff9b:2::808:808", Tier::kFloor, Reason::kReservedAddress},
                        {"2a00:65::1", Tier::kPublic, Reason::kAllowed},
                        {"2002:7f00:1::1", Tier::kFloor, Reason::kLoopbackAddress}};
  for (const Case& c : cases) {
    const AddressClass found = classify(*IpAddress::parse(c.address), nat64);
    EXPECT_EQ(found.tier, c.tier) << c.address;
    EXPECT_EQ(to_text(found.reason), to_text(c.reason)) << c.address;
  }
  const std::vector<Cidr> ten = {*Cidr::parse("10.0.0.0/8")};
  EXPECT_TRUE(is_open(*IpAddress::parse("64:ff9b::808:808"), {}, nat64));
  EXPECT_FALSE(is_open(*IpAddress::parse("64:ff9b::808:808"), {}));
  EXPECT_FALSE(is_open(*IpAddress::parse("64:ff9b::a00:1"), {}, nat64));
  EXPECT_TRUE(is_open(*IpAddress::parse("64:ff9b::a00:1"), ten, nat64));
  EXPECT_FALSE(is_open(*IpAddress::parse("64:ff9b::7f00:1"), ten, nat64));
}

std::string policy_with(const std::string& keys) {
  return R"({"version":1,"sandbox":"s","operation":"o","manifest":"m","mode":"enforce",
             "rules":[{"id":"r","rule":"six.example"}])" +
         keys + "}";
}

TEST(Nat64, ThePolicyKeyOpensThePrefixAndNothingElse) {
  const Host host(*HostName::parse("six.example"));
  const std::vector<IpAddress> public_one = {*IpAddress::parse("64:ff9b::808:808")};
  const std::vector<IpAddress> private_one = {*IpAddress::parse("64:ff9b::a00:1")};
  const std::set<IpAddress> own = {*IpAddress::parse("11.0.0.2")};
  const std::vector<IpAddress> own_inside = {*IpAddress::parse("64:ff9b::b00:2")};
  const auto plain = EgressPolicy::parse(policy_with(""));
  ASSERT_TRUE(plain.ok()) << plain.error().message();
  EXPECT_EQ(plain->decide_addresses(host, 443, public_one, {}).decision.reason,
            Reason::kPrivateAddress);
  const auto named = EgressPolicy::parse(policy_with(R"(,"nat64":["64:ff9b::/96"])"));
  ASSERT_TRUE(named.ok()) << named.error().message();
  EXPECT_TRUE(named->decide_addresses(host, 443, public_one, {}).decision.allowed());
  EXPECT_EQ(named->decide_addresses(host, 443, private_one, {}).decision.reason,
            Reason::kPrivateAddress);
  EXPECT_EQ(named->decide_addresses(host, 443, own_inside, own).decision.reason,
            Reason::kHostAddress);
  EXPECT_FALSE(EgressPolicy::parse(policy_with(R"(,"nat64":["64:ff9b::/64"])")).ok());
  EXPECT_FALSE(EgressPolicy::parse(policy_with(R"(,"nat64":"64:ff9b::/96")")).ok());
  EXPECT_FALSE(EgressPolicy::parse(policy_with(R"(,"nat64":[1])")).ok());
}

}  // namespace
}  // namespace cofferdam::policy
