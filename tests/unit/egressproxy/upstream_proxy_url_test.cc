#include <gtest/gtest.h>

#include "common/policy/egress_policy.h"
#include "common/policy/upstream_proxy.h"

namespace cofferdam::policy {
namespace {

TEST(UpstreamProxyUrl, TakesUserPasswordAndPort) {
  const auto plain = parse_upstream_proxy("http://Proxy.Example:3128/");
  ASSERT_TRUE(plain.ok()) << plain.error().message();
  EXPECT_EQ(plain->endpoint.text(), "proxy.example:3128");
  EXPECT_TRUE(plain->authorization.empty());
  EXPECT_EQ(plain->connect, UpstreamProxy::Connect::kAddress);
  struct Case {
    const char* url;
    const char* authorization;
  };
  const Case cases[] = {
      {"http://user:pass@10.0.0.1:8080", "Basic dXNlcjpwYXNz"},
      {"http://Aladdin:open%20sesame@h.example:1", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="},
      {"http://a%40b:c%3Ad@h.example:1", "Basic YUBiOmM6ZA=="},
      {"http://u@h.example:1", "Basic dTo="},
      {"http://u:p@q@[fd00::1]:1", "Basic dTpwQHE="}};
  for (const Case& c : cases) {
    const auto proxy = parse_upstream_proxy(c.url);
    ASSERT_TRUE(proxy.ok()) << c.url << proxy.error().message();
    EXPECT_EQ(proxy->authorization, c.authorization);
    EXPECT_EQ(proxy->to_text().find('@'), std::string::npos);
  }
}

TEST(UpstreamProxyUrl, RefusesWhatIsUnclearAndNeverTellsThePassword) {
  for (const char* url : {"",
                          "proxy.example:3128",
                          "https://proxy.example:3128",
                          "socks5://proxy.example:1080",
                          "HTTP://proxy.example:3128",
                          "http://",
                          "http://:3128",
                          "http://proxy.example",
                          "http://proxy.example:",
                          "http://proxy.example:0",
                          "http://proxy.example:3128/path",
                          "http://proxy.example:3128?x",
                          "http://s3cr3t:s3cr3t%0d%0aX@h.example:1",
                          "http://s3cr3t:s3cr3t%zz@h.example:1",
                          "http://s3cr3t%3a:x@h.example:1",
                          "http://:s3cr3t@h.example:1",
                          "http://s3cr3t:s3cr3t@h.example",
                          "http://s3cr3t:x@1.2.3:1",
                          "http://localhost:3128",
                          "http://169.254.169.254:80",
                          "http://0.0.0.0:3128",
                          "http://[::]:3128",
                          "http://224.0.0.1:3128",
                          "http://[::1:3128",
                          "http://u:s3cr3t@:1"}) {
    const auto proxy = parse_upstream_proxy(url);
    ASSERT_FALSE(proxy.ok()) << url;
    EXPECT_EQ(proxy.error().message().find("s3cr3t"), std::string::npos) << proxy.error().message();
  }
  EXPECT_NE(parse_upstream_proxy("https://h:1").error().message().find("not in this version"),
            std::string::npos);
}

TEST(UpstreamProxyUrl, IsShownWithoutItsUser) {
  EXPECT_EQ(without_user("http://u:p@h.example:1"), "http://h.example:1");
  EXPECT_EQ(without_user("http://u:p@q@h.example:1/"), "http://h.example:1/");
  EXPECT_EQ(without_user("http://h.example:1"), "http://h.example:1");
  EXPECT_EQ(without_user("u:p@h.example:1"), "h.example:1");
}

TEST(UpstreamProxyAddress, IsTheUsersChoiceButNoDnsAnswerLeadsToThisMachine) {
  struct Case {
    const char* address;
    bool literal;
    bool own;
    Reason reason;
  };
  const Case cases[] = {{"10.0.0.1", false, false, Reason::kAllowed},
                        {"192.168.1.1", true, false, Reason::kAllowed},
                        {"8.8.8.8", false, false, Reason::kAllowed},
                        {"fd00::1", false, false, Reason::kAllowed},
                        {"127.0.0.1", true, false, Reason::kAllowed},
                        {"::1", true, false, Reason::kAllowed},
                        {"127.0.0.1", false, false, Reason::kLoopbackAddress},
                        {"169.254.7.7", true, false, Reason::kAllowed},
                        {"169.254.7.7", false, false, Reason::kLinkLocalAddress},
                        {"11.0.0.2", true, true, Reason::kAllowed},
                        {"11.0.0.2", false, true, Reason::kHostAddress},
                        {"0.0.0.0", true, false, Reason::kLoopbackAddress},
                        {"::", true, false, Reason::kLoopbackAddress},
                        {"169.254.169.254", true, false, Reason::kMetadataAddress},
                        {"100.100.100.200", true, false, Reason::kMetadataAddress},
                        {"224.0.0.1", true, false, Reason::kReservedAddress},
                        {"2002:7f00:1::1", false, false, Reason::kLoopbackAddress}};
  for (const Case& c : cases) {
    EXPECT_EQ(to_text(refuse_proxy_address(*IpAddress::parse(c.address), c.literal, c.own)),
              to_text(c.reason))
        << c.address;
  }
}

Result<EgressPolicy> policy_with(const std::string& keys) {
  return EgressPolicy::parse(
      R"({"version":1,"sandbox":"s","operation":"o","manifest":"m","mode":"enforce","rules":[])" +
      keys + "}");
}

TEST(UpstreamProxyPolicy, ByNameNeedsTheAddressCheckAcceptedAsMissing) {
  const auto by_address = policy_with(R"(,"upstream_proxy":{"url":"http://10.0.0.1:3128"})");
  ASSERT_TRUE(by_address.ok()) << by_address.error().message();
  EXPECT_TRUE(by_address->upstream_proxy().has_value());
  EXPECT_FALSE(by_address->resolves_at_proxy());
  const std::string name = R"(,"upstream_proxy":{"url":"http://10.0.0.1:3128","connect":"name"})";
  const auto refused = policy_with(name);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message().find("accept_missing: [address_check]"), std::string::npos);
  const auto accepted = policy_with(name + R"(,"accept_missing":["address_check"])");
  ASSERT_TRUE(accepted.ok()) << accepted.error().message();
  EXPECT_TRUE(accepted->resolves_at_proxy());
  for (const char* wrong :
       {R"(,"upstream_proxy":{})", R"(,"upstream_proxy":"http://h:1")",
        R"(,"upstream_proxy":{"url":1})", R"(,"accept_missing":["memory"])",
        R"(,"upstream_proxy":{"url":"http://h.example:1","user":"u"})",
        R"(,"upstream_proxy":{"url":"http://h.example:1","connect":"direct"})"}) {
    EXPECT_FALSE(policy_with(wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace cofferdam::policy
