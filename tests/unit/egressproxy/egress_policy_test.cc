#include "common/policy/egress_policy.h"

#include <gtest/gtest.h>

namespace cofferdam::policy {
namespace {

Json base_policy() {
  return {{"version", 1},           {"sandbox", "s"},    {"operation", "o"},
          {"manifest", "sha256:0"}, {"mode", "enforce"}, {"rules", Json::array()}};
}

EgressPolicy policy_of(const std::vector<std::string>& rules,
                       const std::vector<std::string>& deny = {}, Json more = Json::object()) {
  Json json = base_policy();
  int number = 0;
  for (const auto& rule : rules) {
    json["rules"].push_back({{"id", "r:" + std::to_string(++number)}, {"rule", rule}});
  }
  for (const auto& rule : deny) {
    json["deny"].push_back({{"id", "d:" + std::to_string(++number)}, {"rule", rule}});
  }
  json.update(more);
  auto policy = EgressPolicy::from_json(json);
  EXPECT_TRUE(policy.ok()) << (policy.ok() ? "" : policy.error().message());
  return std::move(policy).value();
}

Endpoint endpoint(const char* text) {
  return *parse_endpoint(text);
}

std::vector<IpAddress> addresses(std::initializer_list<const char*> texts) {
  std::vector<IpAddress> list;
  for (const char* text : texts) list.push_back(*IpAddress::parse(text));
  return list;
}

TEST(Decision, DefaultsToDeny) {
  EXPECT_FALSE(Decision{}.allowed());
  EXPECT_FALSE(EndpointDecision{}.decision.allowed());
  EXPECT_FALSE(AddressDecision{}.decision.allowed());
}

TEST(EgressPolicy, DecidesNames) {
  const EgressPolicy policy =
      policy_of({"example.com", "http://plain.example", "*.wild.example", "tcp://git.example:22",
                 "8.8.8.8", "api.example:8443", "10.0.0.1"},
                {"bad.wild.example", "http://plain.example:8080"});
  struct Case {
    const char* endpoint;
    Protocol protocol;
    Reason reason;
    const char* rule;
  };
  const Case cases[] = {
      {"example.com:443", Protocol::kTls, Reason::kAllowed, "r:1"},
      {"example.com:80", Protocol::kHttp, Reason::kPortNotAllowed, "r:1"},
      {"example.com:443", Protocol::kHttp, Reason::kProtocolNotAllowed, "r:1"},
      {"example.com:22", Protocol::kTcp, Reason::kPortNotAllowed, "r:1"},
      {"a.example.com:443", Protocol::kTls, Reason::kNoRule, ""},
      {"evilexample.com:443", Protocol::kTls, Reason::kNoRule, ""},
      {"example.com.evil.example:443", Protocol::kTls, Reason::kNoRule, ""},
      {"plain.example:80", Protocol::kHttp, Reason::kAllowed, "r:2"},
      {"a.wild.example:443", Protocol::kTls, Reason::kAllowed, "r:3"},
      {"wild.example:443", Protocol::kTls, Reason::kNoRule, ""},
      {"bad.wild.example:443", Protocol::kTls, Reason::kDeniedByRule, "d:8"},
      {"git.example:22", Protocol::kTcp, Reason::kAllowed, "r:4"},
      {"8.8.8.8:443", Protocol::kTls, Reason::kAllowed, "r:5"},
      {"8.8.8.8:53", Protocol::kTcp, Reason::kPortNotAllowed, "r:5"},
      {"8.8.4.4:443", Protocol::kTls, Reason::kIpLiteral, ""},
      {"[2606:4700::1]:443", Protocol::kTls, Reason::kIpLiteral, ""},
      {"10.0.0.2:443", Protocol::kTls, Reason::kIpLiteral, ""},
      {"169.254.169.254:80", Protocol::kHttp, Reason::kMetadataAddress, ""},
      {"[::ffff:169.254.169.254]:80", Protocol::kHttp, Reason::kMetadataAddress, ""},
      {"127.0.0.1:443", Protocol::kTls, Reason::kLoopbackAddress, ""},
      {"[::]:443", Protocol::kTls, Reason::kLoopbackAddress, ""},
      {"localhost:443", Protocol::kTls, Reason::kLoopbackAddress, ""},
      {"metadata.google.internal:80", Protocol::kHttp, Reason::kMetadataAddress, ""},
      {"intranet:443", Protocol::kTls, Reason::kNoRule, ""},
      {"api.example:8443", Protocol::kTls, Reason::kAllowed, "r:6"},
      {"api.example:443", Protocol::kTls, Reason::kPortNotAllowed, "r:6"},
  };
  for (const Case& c : cases) {
    const Decision decision = policy.decide_name(endpoint(c.endpoint), c.protocol);
    EXPECT_EQ(to_text(decision.reason), to_text(c.reason)) << c.endpoint;
    EXPECT_EQ(decision.allowed(), c.reason == Reason::kAllowed) << c.endpoint;
    EXPECT_EQ(decision.rule, c.rule) << c.endpoint;
  }
}

TEST(EgressPolicy, AnEmptyListAllowsNothing) {
  const EgressPolicy policy = policy_of({});
  EXPECT_EQ(policy.decide_lookup(*HostName::parse("example.com")).reason, Reason::kNoRule);
  EXPECT_FALSE(policy.decide_name(endpoint("example.com:443"), Protocol::kTls).allowed());
  EXPECT_FALSE(policy.decide_addresses(*Host::parse("example.com"), 443, addresses({"8.8.8.8"}), {})
                   .decision.allowed());
}

TEST(EgressPolicy, LookupsFollowTheRulesOfAnyPort) {
  const EgressPolicy policy = policy_of({"tcp://git.example:22", "*.wild.example", "a.internal"},
                                        {"no.wild.example", "git.example:25", "http://a.internal"});
  const auto lookup = [&policy](const char* name) {
    return policy.decide_lookup(*HostName::parse(name)).reason;
  };
  EXPECT_EQ(lookup("git.example"), Reason::kAllowed);
  EXPECT_EQ(lookup("x.wild.example"), Reason::kAllowed);
  EXPECT_EQ(lookup("no.wild.example"), Reason::kDeniedByRule);
  EXPECT_EQ(lookup("other.example"), Reason::kNoRule);
  EXPECT_EQ(lookup("a.internal"), Reason::kAllowed);  // listed exactly
  EXPECT_EQ(lookup("b.internal"), Reason::kNoRule);
  EXPECT_EQ(lookup("localhost"), Reason::kLoopbackAddress);
}

TEST(EgressPolicy, SpecialNamesAreNotReachedByAWildcard) {
  const EgressPolicy policy = policy_of({"*.google.internal", "*.corp.local"});
  EXPECT_EQ(policy.decide_lookup(*HostName::parse("metadata.google.internal")).reason,
            Reason::kMetadataAddress);
  EXPECT_FALSE(policy.decide_lookup(*HostName::parse("db.corp.local")).allowed());
}

TEST(EgressPolicy, TellsWhichProtocolsAnEndpointHas) {
  const EgressPolicy policy =
      policy_of({"tls://both.example:8080", "http://both.example:8080", "tcp://raw.example:5432"});
  const auto both = policy.decide_endpoint(endpoint("both.example:8080"));
  EXPECT_TRUE(both.decision.allowed());
  EXPECT_TRUE(both.protocols.tls && both.protocols.http && !both.protocols.tcp);
  EXPECT_EQ(both.protocols.certain(), std::nullopt);
  const auto raw = policy.decide_endpoint(endpoint("raw.example:5432"));
  EXPECT_TRUE(raw.protocols.tcp && !raw.protocols.tls && !raw.protocols.http);
  EXPECT_EQ(raw.protocols.certain(), Protocol::kTcp);
  EXPECT_EQ((ProtocolSet{true, true, true}.certain()), Protocol::kTcp);
  EXPECT_EQ((ProtocolSet{true, false, false}.certain()), Protocol::kTls);
  EXPECT_EQ((ProtocolSet{false, true, false}.certain()), Protocol::kHttp);
  EXPECT_EQ(ProtocolSet{}.certain(), std::nullopt);
  const auto none = policy.decide_endpoint(endpoint("both.example:80"));
  EXPECT_EQ(none.decision.reason, Reason::kPortNotAllowed);
  EXPECT_FALSE(none.protocols.any());
}

TEST(EgressPolicy, DropsAddressesThatMayNotBeReached) {
  const EgressPolicy policy = policy_of({"example.com"});
  const auto result = policy.decide_addresses(
      *Host::parse("example.com"), 443,
      addresses({"8.8.8.8", "10.0.0.1", "169.254.169.254", "2606:4700::1", "::1"}), {});
  EXPECT_TRUE(result.decision.allowed());
  EXPECT_EQ(result.allowed, addresses({"8.8.8.8", "2606:4700::1"}));
  ASSERT_EQ(result.dropped.size(), 3U);
  EXPECT_EQ(result.dropped[0].decision.reason, Reason::kPrivateAddress);
  EXPECT_EQ(result.dropped[1].decision.reason, Reason::kMetadataAddress);
  EXPECT_EQ(result.dropped[2].decision.reason, Reason::kLoopbackAddress);
}

TEST(EgressPolicy, RefusesAMixedAnswerWhenToldTo) {
  const EgressPolicy policy = policy_of({"example.com"}, {}, {{"mixed", "refuse"}});
  const Host host = *Host::parse("example.com");
  const auto mixed = policy.decide_addresses(host, 443, addresses({"8.8.8.8", "10.0.0.1"}), {});
  EXPECT_EQ(mixed.decision.reason, Reason::kMixedAnswer);
  EXPECT_TRUE(mixed.allowed.empty());
  EXPECT_TRUE(policy.decide_addresses(host, 443, addresses({"8.8.8.8"}), {}).decision.allowed());
}

TEST(EgressPolicy, AnAnswerWithNothingGoodIsRefusedWithItsReason) {
  const EgressPolicy policy = policy_of({"example.com"});
  const Host host = *Host::parse("example.com");
  EXPECT_EQ(policy.decide_addresses(host, 443, addresses({"10.0.0.1"}), {}).decision.reason,
            Reason::kPrivateAddress);
  EXPECT_EQ(policy.decide_addresses(host, 443, {}, {}).decision.reason, Reason::kNoAddress);
}

TEST(EgressPolicy, OpensThePolicyTierForOneHostOnly) {
  const EgressPolicy policy =
      policy_of({"mirror.example=10.0.0.0/8,100.64.0.0/10", "http://mirror.example",
                 "other.example", "tls://10.9.9.9=10.9.9.9"});
  const auto reason = [&policy](const char* host, std::optional<std::uint16_t> port,
                                const char* address) {
    return policy.decide_addresses(*Host::parse(host), port, addresses({address}), {})
        .decision.reason;
  };
  EXPECT_EQ(reason("mirror.example", 443, "10.1.1.1"), Reason::kAllowed);
  EXPECT_EQ(reason("mirror.example", std::nullopt, "10.1.1.1"), Reason::kAllowed);
  EXPECT_EQ(reason("mirror.example", 80, "10.1.1.1"), Reason::kPrivateAddress);
  EXPECT_EQ(reason("mirror.example", 443, "192.168.1.1"), Reason::kPrivateAddress);
  EXPECT_EQ(reason("mirror.example", 443, "100.100.100.200"), Reason::kMetadataAddress);
  EXPECT_EQ(reason("other.example", 443, "10.1.1.1"), Reason::kPrivateAddress);
  EXPECT_EQ(reason("10.9.9.9", 443, "10.9.9.9"), Reason::kAllowed);
}

TEST(EgressPolicy, ProtectsTheMachineItself) {
  const EgressPolicy policy = policy_of({"example.com=10.0.0.0/8"}, {},
                                        {{"host_addresses", {"198.51.100.7", "8.8.4.0/24"}}});
  const Host host = *Host::parse("example.com");
  const std::set<IpAddress> own = {*IpAddress::parse("93.184.216.34"),
                                   *IpAddress::parse("10.5.5.5"), *IpAddress::parse("2a00::1")};
  const auto reason = [&](const char* address) {
    return policy.decide_addresses(host, 443, addresses({address}), own).decision.reason;
  };
  EXPECT_EQ(reason("93.184.216.34"), Reason::kHostAddress);
  EXPECT_EQ(reason("10.5.5.5"), Reason::kHostAddress);  // also inside an opened range
  EXPECT_EQ(reason("2a00::1"), Reason::kHostAddress);
  EXPECT_EQ(reason("8.8.4.4"), Reason::kHostAddress);
  EXPECT_EQ(reason("2a00::5efe:93.184.216.34"), Reason::kHostAddress);
  EXPECT_EQ(reason("93.184.216.35"), Reason::kAllowed);
  EXPECT_EQ(reason("10.5.5.6"), Reason::kAllowed);
}

TEST(EgressPolicy, DenyOfALiteralHoldsForResolvedAddressesToo) {
  const EgressPolicy policy = policy_of({"example.com"}, {"8.8.8.8"});
  const auto result = policy.decide_addresses(*Host::parse("example.com"), 443,
                                              addresses({"8.8.8.8", "8.8.4.4"}), {});
  EXPECT_EQ(result.allowed, addresses({"8.8.4.4"}));
  EXPECT_EQ(result.dropped.at(0).decision.reason, Reason::kDeniedByRule);
}

TEST(EgressPolicy, DenyOfALiteralWithAProtocolHoldsForThatProtocol) {
  const EgressPolicy policy =
      policy_of({"example.com", "http://example.com:443"},
                {"tls://8.8.8.8", "http://8.8.4.4:443", "tls://9.9.9.9:80"});
  const auto allowed = [&policy](std::optional<std::uint16_t> port,
                                 std::optional<Protocol> protocol) {
    return policy
        .decide_addresses(*Host::parse("example.com"), port,
                          addresses({"8.8.8.8", "8.8.4.4", "9.9.9.9"}), {}, protocol)
        .allowed;
  };
  EXPECT_EQ(allowed(443, Protocol::kTls), addresses({"8.8.4.4", "9.9.9.9"}));
  EXPECT_EQ(allowed(443, Protocol::kHttp), addresses({"8.8.8.8", "9.9.9.9"}));
  EXPECT_EQ(allowed(443, std::nullopt), addresses({"9.9.9.9"})) << "not known yet: both hold";
  EXPECT_EQ(allowed(std::nullopt, std::nullopt).size(), 3U) << "a question has no protocol";
}

TEST(EgressPolicy, ARangeIsOpenForTheProtocolOfItsRule) {
  const EgressPolicy policy =
      policy_of({"tcp://db.example:443=10.0.0.0/8", "tls://db.example:443"});
  const auto reason = [&policy](std::optional<Protocol> protocol) {
    return policy
        .decide_addresses(*Host::parse("db.example"), 443, addresses({"10.1.1.1"}), {}, protocol)
        .decision.reason;
  };
  EXPECT_EQ(reason(Protocol::kTcp), Reason::kAllowed);
  EXPECT_EQ(reason(Protocol::kTls), Reason::kPrivateAddress);
}

TEST(EgressPolicy, AnErrorShowsNothingOfATextThatIsNoJson) {
  for (const char* text : {R"({"upstream_proxy": {"url": "http://wanda:s3cret@10.0.0.5:3128)",
                           "{\"url\": \"http://wanda:s3cret\x01\"}", "s3cret"}) {
    const auto policy = EgressPolicy::parse(text);
    ASSERT_FALSE(policy.ok()) << text;
    EXPECT_EQ(policy.error().message().find("s3c"), std::string::npos) << policy.error().message();
    EXPECT_TRUE(policy.error().message().starts_with("policy: ")) << policy.error().message();
  }
}

TEST(EgressPolicy, KeepsSixteenAddresses) {
  const EgressPolicy policy = policy_of({"example.com"});
  std::vector<IpAddress> many;
  for (int i = 1; i <= 200; ++i) {
    many.push_back(IpAddress::from_v4({8, 8, 8, static_cast<std::uint8_t>(i)}));
  }
  EXPECT_EQ(policy.decide_addresses(*Host::parse("example.com"), 443, many, {}).allowed.size(),
            16U);
}

TEST(EgressPolicy, OpenModeStillKeepsTheFloorAndThePolicyTier) {
  const EgressPolicy policy = policy_of({}, {"bad.example"}, {{"mode", "open"}});
  EXPECT_TRUE(policy.decide_name(endpoint("any.example:8443"), Protocol::kTls).allowed());
  EXPECT_TRUE(policy.decide_lookup(*HostName::parse("any.example")).allowed());
  EXPECT_TRUE(policy.decide_name(endpoint("any.example:22"), Protocol::kTcp).allowed());
  // A shared address must not lead to bad.example through another name.
  EXPECT_FALSE(policy.decide_name(endpoint("any.example:443"), Protocol::kTcp).allowed());
  EXPECT_FALSE(policy.decide_endpoint(endpoint("any.example:443")).protocols.tcp);
  EXPECT_TRUE(policy.decide_endpoint(endpoint("any.example:443")).protocols.tls);
  EXPECT_FALSE(policy.decide_lookup(*HostName::parse("bad.example")).allowed());
  EXPECT_TRUE(policy.decide_name(endpoint("8.8.8.8:443"), Protocol::kTls).allowed());
  EXPECT_EQ(policy.decide_name(endpoint("169.254.169.254:80"), Protocol::kHttp).reason,
            Reason::kMetadataAddress);
  EXPECT_FALSE(policy.decide_lookup(*HostName::parse("localhost")).allowed());
  const Host host = *Host::parse("any.example");
  for (const char* address : {"10.0.0.1", "127.0.0.1", "169.254.169.254", "fd00::1", "::1"}) {
    EXPECT_FALSE(policy.decide_addresses(host, 443, addresses({address}), {}).decision.allowed())
        << address;
  }
}

TEST(EgressPolicyParse, RefusesWhatItDoesNotKnow) {
  const auto broken = [](const char* key, Json value) {
    Json json = base_policy();
    json[key] = std::move(value);
    return !EgressPolicy::from_json(json).ok();
  };
  EXPECT_TRUE(broken("rulez", Json::array()));
  EXPECT_TRUE(broken("version", 2));
  EXPECT_TRUE(broken("version", "1"));
  EXPECT_TRUE(broken("mode", "audit"));
  EXPECT_TRUE(broken("mode", "off"));
  EXPECT_TRUE(broken("mode", 1));
  EXPECT_TRUE(broken("mixed", "keep"));
  EXPECT_TRUE(broken("rules", Json::object()));
  EXPECT_TRUE(broken("rules", {"example.com"}));
  EXPECT_TRUE(broken("rules", {{{"id", "a"}}}));
  EXPECT_TRUE(broken("rules", {{{"rule", "example.com"}}}));
  EXPECT_TRUE(broken("rules", {{{"id", ""}, {"rule", "example.com"}}}));
  EXPECT_TRUE(broken("rules", {{{"id", "a"}, {"rule", "*"}}}));
  EXPECT_TRUE(broken("rules", {{{"id", "a"}, {"rule", "a.example"}, {"methods", "GET"}}}));
  EXPECT_TRUE(broken("rules",
                     {{{"id", "a"}, {"rule", "a.example"}}, {{"id", "a"}, {"rule", "b.example"}}}));
  EXPECT_TRUE(broken("deny", {{{"id", "a"}, {"rule", "a=10.0.0.0/8"}}}));
  EXPECT_TRUE(broken("host_addresses", {"example.com"}));
  EXPECT_TRUE(broken("resolver", {{"servers", {"dns.example"}}}));
  EXPECT_TRUE(broken("resolver", {{"timeout_ms", 0}}));
  EXPECT_TRUE(broken("resolver", {{"timeout_ms", -5}}));
  EXPECT_TRUE(broken("resolver", {{"search", "a"}}));
  EXPECT_FALSE(broken("mixed", "drop"));
  EXPECT_FALSE(EgressPolicy::parse("{").ok());
  EXPECT_FALSE(EgressPolicy::parse("[]").ok());
  Json no_rules = base_policy();
  no_rules.erase("rules");
  EXPECT_FALSE(EgressPolicy::from_json(no_rules).ok());
}

TEST(EgressPolicyParse, ReadsTheResolver) {
  const EgressPolicy policy = policy_of(
      {}, {},
      {{"resolver",
        {{"servers", {"192.0.2.53", "[2001:db8::53]:5353", "::1"}}, {"timeout_ms", 1500}}}});
  ASSERT_EQ(policy.servers().size(), 3U);
  EXPECT_EQ(policy.servers()[0].port, 53);
  EXPECT_EQ(policy.servers()[1].port, 5353);
  EXPECT_EQ(policy.servers()[1].address.to_text(), "2001:db8::53");
  EXPECT_EQ(policy.servers()[2].address.to_text(), "::1");
  EXPECT_EQ(policy.resolve_timeout_ms(), 1500U);
}

}  // namespace
}  // namespace cofferdam::policy
