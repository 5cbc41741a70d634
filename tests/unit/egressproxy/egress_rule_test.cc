#include "common/policy/egress_rule.h"

#include <gtest/gtest.h>

#include "common/policy/public_suffix.h"

namespace cofferdam::policy {
namespace {

TEST(EgressRule, FillsInProtocolAndPort) {
  struct Case {
    const char* text;
    const char* canonical;
  };
  const Case cases[] = {
      {"example.com", "tls://example.com:443"},
      {"EXAMPLE.com.", "tls://example.com:443"},
      {"example.com:80", "http://example.com:80"},
      {"tls://example.com:80", "tls://example.com:80"},
      {"example.com:8443", "tls://example.com:8443"},
      {"http://example.com", "http://example.com:80"},
      {"http://example.com:8080", "http://example.com:8080"},
      {"tcp://example.com:22", "tcp://example.com:22"},
      {"*.example.com", "tls://*.example.com:443"},
      {"*.Example.COM:8443", "tls://*.example.com:8443"},
      {"8.8.8.8", "tls://8.8.8.8:443"},
      {"[2606:4700::1]:80", "http://[2606:4700::1]:80"},
      {"tls://registry.example:443=203.0.113.0/24", "tls://registry.example:443=203.0.113.0/24"},
      {"mirror.example=10.0.0.0/8,fd00::/8", "tls://mirror.example:443=10.0.0.0/8,fd00::/8"},
      {"mirror.example=10.1.2.3", "tls://mirror.example:443=10.1.2.3/32"},
      {"http://[fd00::1]=fd00::1", "http://[fd00::1]:80=fd00::1/128"},
  };
  for (const Case& c : cases) {
    const auto rule = parse_rule(c.text);
    ASSERT_TRUE(rule.ok()) << c.text << ": " << rule.error().message();
    EXPECT_EQ(to_text(*rule), c.canonical);
    const auto again = parse_rule(to_text(*rule));
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(to_text(*again), c.canonical);
  }
}

TEST(EgressRule, RefusesWhatIsTooWideOrUnclear) {
  for (const char* text : {"",
                           "*",
                           "*.com",
                           "*.co.uk",
                           "*.github.io",
                           "ex*mple.com",
                           "*example.com",
                           "a.*.com",
                           "**",
                           "*.*",
                           "*.",
                           "**.example.com",
                           "*.example.com.*",
                           "tls://",
                           "https://example.com",
                           "ftp://example.com",
                           "udp://example.com:53",
                           "TLS://example.com",
                           "tcp://example.com",
                           "example.com:",
                           "example.com:0",
                           "example.com:65536",
                           "example.com:https",
                           "example.com:443=",
                           "example.com=10.0.0.0/8,",
                           "example.com=,10.0.0.0/8",
                           "example.com=10.0.0.1/8",
                           "example.com=nonsense",
                           "example.com=127.0.0.1",
                           "example.com=169.254.169.254",
                           "example.com/path",
                           "http://example.com/",
                           "user@example.com",
                           "*.1.2.3.4",
                           "*.127.0.0.1",
                           "[*.example.com]",
                           "::1",
                           "1.2.3",
                           "0x7f.1",
                           "example com",
                           "ex\xc3\x84mple.com",
                           "*.foo.ck",
                           "tls://tls://a.com",
                           "a.com=10.0.0.0/8=10.0.0.0/8"}) {
    EXPECT_FALSE(parse_rule(text).ok()) << text;
  }
}

TEST(EgressRule, SaysWhatToWriteInstead) {
  EXPECT_NE(parse_rule("https://example.com").error().message().find("tls://"), std::string::npos);
  EXPECT_NE(parse_rule("*").error().message().find("open"), std::string::npos);
  EXPECT_NE(parse_rule("tcp://a.com").error().message().find("tcp://HOST:PORT"), std::string::npos);
}

TEST(HostPattern, MatchesByLabels) {
  const auto matches = [](const char* rule, const char* host) {
    return parse_rule(rule)->pattern.matches(*Host::parse(host));
  };
  EXPECT_TRUE(matches("*.example.com", "a.example.com"));
  EXPECT_TRUE(matches("*.example.com", "A.B.example.com."));
  EXPECT_FALSE(matches("*.example.com", "example.com"));
  EXPECT_FALSE(matches("*.example.com", "evilexample.com"));
  EXPECT_FALSE(matches("*.example.com", "example.com.evil.net"));
  EXPECT_TRUE(matches("example.com", "EXAMPLE.com"));
  EXPECT_FALSE(matches("example.com", "a.example.com"));
  EXPECT_FALSE(matches("apple.com", "xn--pple-43d.com"));
  EXPECT_TRUE(matches("8.8.8.8", "8.8.8.8"));
  EXPECT_TRUE(matches("8.8.8.8", "[::ffff:8.8.8.8]"));
  EXPECT_FALSE(matches("8.8.8.8", "8.8.4.4"));
}

TEST(DenyRule, MeansAnyWhereItSaysNothing) {
  const auto bare = parse_deny_rule("*.tracker.example");
  ASSERT_TRUE(bare.ok());
  EXPECT_FALSE(bare->port.has_value());
  EXPECT_FALSE(bare->protocol.has_value());
  EXPECT_EQ(parse_deny_rule("*")->pattern.kind(), HostPattern::Kind::kAny);
  EXPECT_TRUE(parse_deny_rule("*.com").ok());
  EXPECT_EQ(*parse_deny_rule("a.example:25")->port, 25);
  EXPECT_EQ(*parse_deny_rule("http://a.example")->protocol, Protocol::kHttp);
  EXPECT_FALSE(parse_deny_rule("a.example=10.0.0.0/8").ok());
  EXPECT_FALSE(parse_deny_rule("").ok());
}

TEST(PublicSuffix, IsDatedAndKnowsTheUsualOnes) {
  EXPECT_EQ(public_suffix_date().size(), 10U);
  for (const char* text : {"com", "co.uk", "github.io", "s3.amazonaws.com", "anything.ck"}) {
    EXPECT_TRUE(is_public_suffix(*HostName::parse(text))) << text;
  }
  for (const char* text : {"example.com", "example.co.uk", "github.com", "a.b.ck"}) {
    EXPECT_FALSE(is_public_suffix(*HostName::parse(text))) << text;
  }
}

}  // namespace
}  // namespace cofferdam::policy
