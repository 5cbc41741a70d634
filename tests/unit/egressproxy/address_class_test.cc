#include "common/policy/address_class.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

namespace cofferdam::policy {
namespace {

std::vector<std::string> words(const char* text) {
  std::istringstream in(text);
  std::vector<std::string> list;
  for (std::string word; in >> word;) list.push_back(word);
  return list;
}

AddressClass class_of(const std::string& text) {
  const auto address = IpAddress::parse(text);
  EXPECT_TRUE(address.has_value()) << text;
  return address ? classify(*address) : AddressClass{Tier::kPublic, Reason::kAllowed, "unparsed"};
}

TEST(AddressClass, RefusesEverySpecialAddress) {
  const char* refused =
      "0.0.0.0 0.1.2.3 0.255.255.255 10.0.0.0 10.255.255.255 100.64.0.0 100.127.255.255 127.0.0.0 "
      "127.0.0.1 127.255.255.254 127.255.255.255 168.63.129.16 169.254.0.0 169.254.0.23 "
      "169.254.169.254 169.254.255.255 172.16.0.0 172.31.255.255 192.0.0.0 192.0.0.1 192.0.0.170 "
      "192.0.0.192 192.0.0.255 192.0.2.0 192.0.2.1 192.0.2.255 192.31.196.0 192.31.196.1 "
      "192.31.196.255 192.52.193.0 192.52.193.1 192.52.193.255 192.88.99.0 192.88.99.1 "
      "192.88.99.255 192.168.0.0 192.168.0.1 192.168.255.255 192.175.48.0 192.175.48.1 "
      "192.175.48.255 198.18.0.0 198.18.0.1 198.19.255.255 198.51.100.0 198.51.100.1 "
      "198.51.100.255 203.0.113.0 203.0.113.1 203.0.113.255 224.0.0.0 224.0.0.1 239.255.255.255 "
      "240.0.0.0 240.0.0.1 255.255.255.254 255.255.255.255 :: ::1 ::2 ::127.0.0.1 ::8.8.8.8 "
      "::ffff:127.0.0.1 ::ffff:0:8.8.8.8 64:ff9b::7f00:1 64:ff9b:1::808:808 "
      "64:ff9b:1:ffff:ffff:ffff:ffff:ffff 100::1 100:0:0:1::1 200::1 3ff:ffff::1 2001::1 "
      "2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:1::1 2001:2::1 2001:3::1 2001:4:112::1 "
      "2001:10::1 2001:20::1 2001:30::1 2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff 2001:db8::1 "
      "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff 2002:7f00:1::1 2002:808:808::1 "
      "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff 2620:4f:8000::1 2620:4f:8000:ffff::1 3ffe::1 "
      "3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff 3fff::1 3fff:fff:ffff::1 "
      "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff 4000::1 4000:: 1fff:ffff::1 5f00::1 fc00::1 fdff::1 "
      "fd00:ec2::254 fd00:ec2::23 fd00:ec2::253 fd00:ec2::123 fd20:ce::254 fd00:c1::a9fe:a9fe "
      "fd00:42::42 fd00:a9fe:a9fe::1 fdaa::3 fd7a:115c:a1e0::53 fd00:100::100:200 fe80::1 "
      "fe80::a9fe:a9fe febf::1 fec0::1 feff::1 ff02::1 ffff::1 8000::1 c000::1 "
      "2a00:1450::5efe:7f00:1 2a00:1450::200:5efe:a9fe:a9fe 2a00:1450::5efe:a00:1";
  for (const std::string& text : words(refused)) {
    EXPECT_NE(class_of(text).tier, Tier::kPublic) << text;
    EXPECT_NE(class_of(text).reason, Reason::kAllowed) << text;
  }
}

TEST(AddressClass, LeavesTheNeighboursOfEveryRangeOpen) {
  const char* open =
      "1.0.0.0 1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 "
      "128.0.0.0 128.0.0.1 168.63.129.15 168.63.129.17 169.253.255.255 169.255.0.0 172.15.255.255 "
      "172.32.0.0 191.255.255.255 192.0.1.0 192.0.1.255 192.0.3.0 192.31.195.255 192.31.197.0 "
      "192.52.192.255 192.52.194.0 192.88.98.255 192.88.100.0 192.167.255.255 192.169.0.0 "
      "192.175.47.255 192.175.49.0 198.17.255.255 198.20.0.0 198.51.99.255 198.51.101.0 "
      "203.0.112.255 203.0.114.0 223.255.255.255 2000::1 2001:200::1 2001:4860:4860::8888 "
      "2001:db7:ffff::1 2001:db9::1 2003::1 2606:4700:4700::1111 2620:4f:7fff::1 2620:4f:8001::1 "
      "2a00:1450::1 3ffd:ffff::1 3fff:1000::1 3fff:ffff::1 2a00:1450::5efe:808:808";
  for (const std::string& text : words(open)) {
    EXPECT_EQ(class_of(text).tier, Tier::kPublic) << text;
    EXPECT_EQ(class_of(text).reason, Reason::kAllowed) << text;
  }
}

TEST(AddressClass, TellsTheReason) {
  struct Case {
    const char* addresses;
    Tier tier;
    Reason reason;
  };
  const Case cases[] = {
      {"169.254.169.254 169.254.170.2 168.63.129.16 100.100.100.200 192.0.0.192 fd00:ec2::254 "
       "fd20:ce::254 fdaa::1 fe80::a9fe:a9fe ::ffff:169.254.169.254 2002:a9fe:a9fe::1 "
       "64:ff9b::a9fe:a9fe ::169.254.169.254 2a00:1450::5efe:a9fe:a9fe",
       Tier::kFloor, Reason::kMetadataAddress},
      {"127.0.0.1 127.9.9.9 0.0.0.0 :: ::1 ::ffff:127.0.0.1 64:ff9b::7f00:1 2002:7f00:1::1",
       Tier::kFloor, Reason::kLoopbackAddress},
      {"169.254.1.1 fe80::1", Tier::kFloor, Reason::kLinkLocalAddress},
      {"10.1.2.3 172.16.0.1 192.168.1.1 100.64.0.1 fc00::1 fd12::1 2a00:1450::5efe:a00:1",
       Tier::kPolicy, Reason::kPrivateAddress},
      {"192.0.2.1 198.18.0.1 203.0.113.9 2001:db8::1 3fff::1 2001:2::1 64:ff9b::808:808",
       Tier::kPolicy, Reason::kPrivateAddress},
      {"224.0.0.1 255.255.255.255 240.0.0.1 0.0.0.1 192.0.0.1 ff02::1 4000::1 2001::1 5f00::1",
       Tier::kFloor, Reason::kReservedAddress},
  };
  for (const Case& c : cases) {
    for (const std::string& text : words(c.addresses)) {
      EXPECT_EQ(class_of(text).tier, c.tier) << text;
      EXPECT_EQ(to_text(class_of(text).reason), to_text(c.reason)) << text;
    }
  }
}

// Every row is classified by its first and last address at least as firmly as it says; this catches
// a row that another one hides.
TEST(AddressClass, HoldsForBothEndsOfEveryRow) {
  for (const AddressRange& range : address_ranges()) {
    const Cidr cidr = *Cidr::parse(range.cidr);
    EXPECT_FALSE(range.source.empty()) << range.cidr;
    IpAddress last = cidr.address();
    if (cidr.address().is_v4()) {
      auto bytes = cidr.address().v4_bytes();
      for (int bit = cidr.length(); bit < 32; ++bit) {
        bytes[static_cast<std::size_t>(bit / 8)] |= static_cast<std::uint8_t>(0x80U >> (bit % 8));
      }
      last = IpAddress::from_v4(bytes);
    } else {
      auto bytes = cidr.address().v6_bytes();
      for (int bit = cidr.length(); bit < 128; ++bit) {
        bytes[static_cast<std::size_t>(bit / 8)] |= static_cast<std::uint8_t>(0x80U >> (bit % 8));
      }
      last = IpAddress::from_v6(bytes);
    }
    EXPECT_GE(classify(cidr.address()).tier, range.tier) << range.cidr;
    EXPECT_GE(classify(last).tier, range.tier) << range.cidr;
  }
}

TEST(AddressClass, FloorWinsInsideAnOpenedRange) {
  struct Case {
    const char* address;
    const char* opened;
    bool open;
  };
  const Case cases[] = {{"100.64.0.1", "100.64.0.0/10", true},
                        {"100.100.100.200", "100.64.0.0/10", false},
                        {"fd00::1", "fd00::/8", true},
                        {"fd00:ec2::254", "fd00::/8", false},
                        {"10.1.2.3", "10.0.0.0/8", true},
                        {"10.1.2.3", "10.1.2.4/32", false},
                        {"127.0.0.1", "0.0.0.0/0", false},
                        {"169.254.169.254", "0.0.0.0/0", false},
                        {"::1", "::/0", false},
                        {"8.8.8.8", "10.0.0.0/8", true},
                        {"198.18.0.1", "198.18.0.0/15", true},
                        {"64:ff9b::808:808", "64:ff9b::/96", true},
                        {"64:ff9b::808:808", "10.0.0.0/8", false},
                        {"64:ff9b::a00:1", "64:ff9b::/96", false},
                        {"64:ff9b::7f00:1", "64:ff9b::/96", false},
                        {"64:ff9b::a9fe:a9fe", "64:ff9b::/96", false}};
  for (const Case& c : cases) {
    const std::vector<Cidr> opened = {*Cidr::parse(c.opened)};
    EXPECT_EQ(is_open(*IpAddress::parse(c.address), opened), c.open)
        << c.address << " " << c.opened;
  }
}

TEST(AddressClass, DecodesWhatAnAddressCarries) {
  const auto carried = [](const char* text) {
    const auto inner = embedded_v4(*IpAddress::parse(text));
    return inner ? inner->to_text() : "none";
  };
  EXPECT_EQ(carried("::1.2.3.4"), "1.2.3.4");
  EXPECT_EQ(carried("::ffff:0:1.2.3.4"), "1.2.3.4");
  EXPECT_EQ(carried("64:ff9b::1.2.3.4"), "1.2.3.4");
  EXPECT_EQ(carried("2002:102:304::1"), "1.2.3.4");
  EXPECT_EQ(carried("2001:0:4136:e378:8000:63bf:3fff:fdd2"), "192.0.2.45");
  EXPECT_EQ(carried("2a00::5efe:102:304"), "1.2.3.4");
  EXPECT_EQ(carried("2a00::200:5efe:102:304"), "1.2.3.4");
  EXPECT_EQ(carried("2606:4700::1111"), "none");
}

TEST(SpecialName, IsRefusedWithoutALookup) {
  const char* special =
      "localhost LOCALHOST localhost. foo.localhost printer.local a.internal home.arpa x.home.arpa "
      "abc.onion a.invalid a.test 1.0.0.127.in-addr.arpa 1.ip6.arpa intranet metadata "
      "metadata.google.internal instance-data instance-data.ec2.internal kubernetes.default.svc "
      "a.cluster.local host.docker.internal gateway.docker.internal host.containers.internal "
      "host.lima.internal metadata.tencentyun.com rancher-metadata api.metadata.cloud.ibm.com "
      "metadata.platformequinix.com _api.internal";
  for (const std::string& text : words(special)) {
    EXPECT_TRUE(special_name(*HostName::parse(text)).has_value()) << text;
  }
  for (const std::string& text : words("example.com localhost.example.com internal.example.com "
                                       "nip.io mylocal.example notlocalhost.example")) {
    EXPECT_FALSE(special_name(*HostName::parse(text)).has_value()) << text;
  }
  EXPECT_EQ(special_name(*HostName::parse("metadata.google.internal")), Reason::kMetadataAddress);
  EXPECT_EQ(special_name(*HostName::parse("a.localhost")), Reason::kLoopbackAddress);
}

}  // namespace
}  // namespace cofferdam::policy
