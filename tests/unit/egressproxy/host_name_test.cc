#include "common/policy/host_name.h"

#include <gtest/gtest.h>

#include <string>

namespace cofferdam::policy {
namespace {

TEST(Host, RefusesEverySpellingThatIsNotCanonical) {
  const std::string label64(64, 'a');
  const std::string name254 = std::string(63, 'a') + "." + std::string(63, 'b') + "." +
                              std::string(63, 'c') + "." + std::string(62, 'd');
  ASSERT_EQ(name254.size(), 254U);
  const std::string refused[] = {
      // Other spellings of IPv4.
      "127.1", "127.0.1", "0", "2130706433", "0x7f000001", "0x7f.1", "017700000001", "127.0.0.01",
      "0177.0.0.1", "256.1.1.1", "1.2.3.4.5", "1.2.3", "1..2.3", "127.0.0.1.", "0x", "1.0x7F",
      "example.1", "example.0xA", "example.com.123.", "00.0.0.0", "0x7f.0.0.1", "4294967296",
      // Bytes that are not ASCII.
      "\xe2\x91\xa0\xe2\x91\xa1\xe2\x91\xa6.\xe2\x93\xaa.\xe2\x93\xaa.\xe2\x91\xa0",
      "127\xe3\x80\x82"
      "0\xe3\x80\x82"
      "0\xe3\x80\x82"
      "1",
      "\xef\xbd\x85xample.com", "ex\xc3\xa4mple.com", "\x80", "\xff.com",
      // Dots.
      "", ".", "..", "example.com..", ".example.com", "a..b.com",
      // Brackets.
      "[example.com]", "[127.0.0.1]", "[[::1]]", "[::1", "::1]", "[]", "[:]", "[::1]x", "x[::1]",
      "::1", "2001:db8::1", "[::1%25eth0]", "[fe80::1%25eth0]", "[::ffff:1.2.3.4%x.allowed.com]",
      "fe80::1%eth0", "[::1.2.3]", "[::0127.0.0.1]", "[1:2:3:4:5:6:7:8:9]", "[::12345]",
      // Encodings, user information, separators.
      "exa%6dple.com", "%31%32%37.0.0.1", "example.com%2eevil.net", "allowed.com@evil.com",
      "user@host", "evil.com#", "evil.com\\", "a/b", "a?b", "a,b", "a;b", "a:b",
      // Controls and spaces.
      "exa mple.com", "example.com ", " example.com", "example.com\r", "example.com\n",
      "exam\tple.com", "exam\x7fple.com", std::string("exam\0ple.com", 12), "example.com\r\nX: y",
      // Sizes.
      label64, label64 + ".com", name254, name254 + ".", "*.example.com", "ex*mple.com"};
  for (const std::string& text : refused) EXPECT_FALSE(Host::parse(text).ok()) << text;
}

TEST(Host, TakesNamesInTheirCanonicalForm) {
  struct Case {
    std::string text;
    std::string canonical;
  };
  const std::string label63(63, 'a');
  const std::string name253 = std::string(63, 'a') + "." + std::string(63, 'b') + "." +
                              std::string(63, 'c') + "." + std::string(61, 'd');
  const Case cases[] = {{"example.com", "example.com"},
                        {"EXAMPLE.com", "example.com"},
                        {"example.com.", "example.com"},
                        {"my_bucket.s3.amazonaws.com", "my_bucket.s3.amazonaws.com"},
                        {"_dmarc.example.com", "_dmarc.example.com"},
                        {"xn--pple-43d.com", "xn--pple-43d.com"},
                        {"xn--a", "xn--a"},
                        {"-a-.example.com", "-a-.example.com"},
                        {"localhost", "localhost"},
                        {"1.example", "1.example"},
                        {"0x7f.example", "0x7f.example"},
                        {"0xg", "0xg"},
                        {"127.0.0.1a", "127.0.0.1a"},
                        {label63 + ".com", label63 + ".com"},
                        {name253, name253},
                        {name253 + ".", name253}};
  for (const Case& c : cases) {
    const auto host = Host::parse(c.text);
    ASSERT_TRUE(host.ok()) << c.text;
    EXPECT_TRUE(host->is_name());
    EXPECT_EQ(host->text(), c.canonical);
  }
}

TEST(Host, TakesLiteralsAndComparesTheirBytes) {
  const auto loopback = IpAddress::parse("::1");
  for (const char* text : {"[0:0:0:0:0:0:0:1]", "[::0001]", "[0000::1]", "[::1]"}) {
    const auto host = Host::parse(text);
    ASSERT_TRUE(host.ok()) << text;
    ASSERT_FALSE(host->is_name());
    EXPECT_EQ(host->address(), *loopback);
    EXPECT_EQ(host->text(), "[::1]");
  }
  EXPECT_EQ(Host::parse("[2001:DB8::A]")->text(), "[2001:db8::a]");
  EXPECT_EQ(Host::parse("192.0.2.1")->text(), "192.0.2.1");
}

TEST(Host, TreatsAMappedAddressAsTheIpv4Address) {
  EXPECT_EQ(Host::parse("[::ffff:169.254.169.254]")->text(), "169.254.169.254");
  EXPECT_EQ(Host::parse("[::ffff:a9fe:a9fe]")->address(), *IpAddress::parse("169.254.169.254"));
}

TEST(HostName, IsNeverALiteral) {
  for (const char* text : {"127.0.0.1", "[::1]", "1.2.3.4"}) {
    EXPECT_FALSE(HostName::parse(text).ok()) << text;
  }
}

TEST(HostName, IsBelowByWholeLabelsOnly) {
  const HostName parent = *HostName::parse("example.com");
  EXPECT_TRUE(HostName::parse("a.example.com")->is_below(parent));
  EXPECT_TRUE(HostName::parse("a.b.example.com")->is_below(parent));
  for (const char* text : {"example.com", "evilexample.com", "example.com.evil.net", "com"}) {
    EXPECT_FALSE(HostName::parse(text)->is_below(parent)) << text;
  }
}

TEST(Port, TakesOnlyCanonicalDecimals) {
  for (const char* text : {"", "0", "65536", "+443", "-1", "0443", " 443", "443 ", "4294967376",
                           "https", "0x50", "4 43", "99999", "1e3"}) {
    EXPECT_FALSE(parse_port(text).ok()) << text;
  }
  EXPECT_EQ(*parse_port("1"), 1);
  EXPECT_EQ(*parse_port("443"), 443);
  EXPECT_EQ(*parse_port("65535"), 65535);
}

TEST(Endpoint, NeedsAPortUnlessADefaultIsGiven) {
  for (const char* text :
       {"example.com", "example.com:", "::1:443", "2001:db8::1:443", "[::1]", "[::1]443", "a:b:443",
        "evil.com:443.allowed.com", "user@host:443", ":443", "[::1]:", "[::1]:0"}) {
    EXPECT_FALSE(parse_endpoint(text).ok()) << text;
  }
  EXPECT_EQ(parse_endpoint("Example.com.:443")->text(), "example.com:443");
  EXPECT_EQ(parse_endpoint("[::1]:443")->text(), "[::1]:443");
  EXPECT_EQ(parse_endpoint("example.com", 80)->text(), "example.com:80");
  EXPECT_EQ(parse_endpoint("[::1]", 80)->text(), "[::1]:80");
  EXPECT_FALSE(parse_endpoint("example.com:", 80).ok());
}

TEST(Address, HasOneSpellingOfIpv4) {
  for (const char* text : {"01.2.3.4", "1.2.3", "1.2.3.4.", " 1.2.3.4", "1.2.3.4 ", "0x1.2.3.4",
                           "1.2.3.256", "fe80::1%lo", "::1%0", ""}) {
    EXPECT_FALSE(IpAddress::parse(text).has_value()) << text;
  }
}

TEST(Cidr, RefusesHostBitsAndMappedRanges) {
  for (const char* text : {"10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "10.0.0.0/08",
                           "::ffff:10.0.0.0/104", "fd00::1/64", "fd00::/129", "example.com/8", "/8",
                           "10.0.0.0/8/8", "10/8"}) {
    EXPECT_FALSE(Cidr::parse(text).ok()) << text;
  }
  const Cidr cidr = *Cidr::parse("172.16.0.0/12");
  EXPECT_TRUE(cidr.contains(*IpAddress::parse("172.31.255.255")));
  EXPECT_FALSE(cidr.contains(*IpAddress::parse("172.32.0.0")));
  EXPECT_FALSE(cidr.contains(*IpAddress::parse("::1")));
  EXPECT_EQ(Cidr::parse("fd00::1")->to_text(), "fd00::1/128");
  EXPECT_TRUE(Cidr::parse("0.0.0.0/0")->contains(*IpAddress::parse("255.255.255.255")));
}

}  // namespace
}  // namespace cofferdam::policy
