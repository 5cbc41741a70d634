#include "egressproxy/gate.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "egressproxy/authorize.h"
#include "egressproxy/dialer.h"
#include "egressproxy/refusal.h"
#include "egressproxy/resolver.h"

namespace cofferdam::egressproxy {
namespace {

using policy::IpAddress;
using policy::Reason;

os::SocketFacts facts(os::SocketKind kind, bool listening, std::uint16_t port,
                      bool loopback = true) {
  os::SocketFacts made;
  made.kind = kind;
  made.listening = listening;
  made.local.address[0] = loopback ? 127 : 10;
  made.local.address[3] = 1;
  made.local.port = port;
  return made;
}

TEST(Gate, TellsTheRoleOfASocketByItsTypeAndPort) {
  using os::SocketKind;
  EXPECT_EQ(*role_of(facts(SocketKind::kDatagram, false, 53)), Role::kDns);
  EXPECT_EQ(*role_of(facts(SocketKind::kStream, true, 53)), Role::kDns);
  EXPECT_EQ(*role_of(facts(SocketKind::kStream, true, 3128)), Role::kExplicit);
  EXPECT_EQ(*role_of(facts(SocketKind::kStream, true, 3129)), Role::kTransparent);
  EXPECT_FALSE(role_of(facts(SocketKind::kStream, true, 80)).ok());
  EXPECT_FALSE(role_of(facts(SocketKind::kStream, false, 3128)).ok());
  EXPECT_FALSE(role_of(facts(SocketKind::kDatagram, false, 3128)).ok());
  EXPECT_FALSE(role_of(facts(SocketKind::kOther, true, 53)).ok());
  EXPECT_FALSE(role_of(facts(SocketKind::kStream, true, 3128, false)).ok());
}

TEST(Gate, ReadsListenOptions) {
  const auto at = parse_listen("explicit=[::1]:3128");
  ASSERT_TRUE(at.ok());
  EXPECT_EQ(at->role, Role::kExplicit);
  EXPECT_EQ(at->address.to_text(), "::1");
  for (const char* text : {"explicit", "transparent=127.0.0.1:1", "dns=localhost:53",
                           "dns=127.0.0.1", "dns=::1:53", "=127.0.0.1:53"}) {
    EXPECT_FALSE(parse_listen(text).ok()) << text;
  }
}

TEST(Gate, ConnectionsInheritThatNothingIsHeldBack) {
  asio::io_context context;
  const std::uint16_t port =
      tcp::acceptor(context, {asio::ip::address_v4::loopback(), 0}).local_endpoint().port();
  auto gate = open_gate(context, {*parse_listen("explicit=127.0.0.1:" + std::to_string(port))});
  ASSERT_TRUE(gate.ok());
  tcp::acceptor& acceptor = *gate->front().acceptor;
  tcp::socket client(context);
  client.connect(acceptor.local_endpoint());
  tcp::no_delay option;
  acceptor.accept().get_option(option);
  EXPECT_TRUE(option.value());
}

policy::EgressPolicy policy_with(const char* rule) {
  return *policy::EgressPolicy::parse(
      R"({"version":1,"sandbox":"","operation":"","manifest":"","mode":"enforce","rules":[{"id":"r","rule":")" +
      std::string(rule) + "\"}]}");
}

std::vector<IpAddress> addresses(std::initializer_list<const char*> texts) {
  std::vector<IpAddress> list;
  for (const char* text : texts) list.push_back(*IpAddress::parse(text));
  return list;
}

TEST(Authorize, MakesEndpointsOfCheckedAddressesOnly) {
  const auto policy = policy_with("a.example.com");
  const policy::Endpoint endpoint = *policy::parse_endpoint("a.example.com:443");
  const auto result =
      authorize(policy, endpoint, policy::Protocol::kTls, addresses({"8.8.8.8", "127.0.0.1"}), {});
  ASSERT_EQ(result.endpoints.size(), 1U);
  EXPECT_EQ(result.endpoints[0].address().to_text(), "8.8.8.8");
  EXPECT_EQ(result.endpoints[0].port(), 443);
  EXPECT_EQ(result.decision.rule, "r");
  EXPECT_EQ(result.dropped.size(), 1U);
}

TEST(Authorize, DecidesTheNameAgain) {
  const auto policy = policy_with("a.example.com");
  for (const char* text : {"b.example.com:443", "a.example.com:80"}) {
    const auto result = authorize(policy, *policy::parse_endpoint(text), policy::Protocol::kTls,
                                  addresses({"8.8.8.8"}), {});
    EXPECT_FALSE(result.decision.allowed());
    EXPECT_TRUE(result.endpoints.empty());
  }
  const auto other = authorize(policy, *policy::parse_endpoint("a.example.com:443"),
                               policy::Protocol::kHttp, addresses({"8.8.8.8"}), {});
  EXPECT_EQ(other.decision.reason, Reason::kProtocolNotAllowed);
}

TEST(Dialer, InterleavesTheFamilies) {
  const auto policy = policy_with("a.example.com");
  const auto result =
      authorize(policy, *policy::parse_endpoint("a.example.com:443"), policy::Protocol::kTls,
                addresses({"2606::1", "2606::2", "2606::3", "8.8.8.8", "8.8.4.4"}), {});
  std::string order;
  for (const auto& one : interleave(result.endpoints)) order += one.address().is_v4() ? '4' : '6';
  EXPECT_EQ(order, "64646");
}

TEST(Refusal, ExplainsItselfAndHidesAddresses) {
  const Refusal refusal{
      403, {policy::Verdict::kDeny, Reason::kNoRule, ""}, "a.example.com", 443, "tls", {}};
  const std::string text = write_refusal(refusal, true);
  EXPECT_TRUE(text.starts_with("HTTP/1.1 403 Forbidden (no_rule)\r\n"));
  EXPECT_NE(text.find("Cofferdam-Reason: no_rule\r\n"), std::string::npos);
  EXPECT_NE(text.find("cofferdam run --allow 'a.example.com'"), std::string::npos);
  EXPECT_EQ(text.find("Connection: close"), std::string::npos);
  EXPECT_NE(write_refusal(refusal, false).find("Connection: close"), std::string::npos);
}

TEST(Refusal, HintsAtTheShortestRuleThatWouldHelp) {
  const auto hint = [](Reason reason, const char* host, std::uint16_t port, const char* protocol) {
    const std::string text = hint_for({policy::Verdict::kDeny, reason, ""}, host, port, protocol);
    const auto quote = text.find('\'');
    return quote == std::string::npos ? text : text.substr(quote + 1, text.size() - quote - 2);
  };
  EXPECT_EQ(hint(Reason::kNoRule, "a.example", 443, ""), "a.example");
  EXPECT_EQ(hint(Reason::kNoRule, "a.example", 443, "tls"), "a.example");
  EXPECT_EQ(hint(Reason::kNoRule, "a.example", 80, ""), "http://a.example");
  EXPECT_EQ(hint(Reason::kPortNotAllowed, "a.example", 8080, "http"), "http://a.example:8080");
  EXPECT_EQ(hint(Reason::kNoRule, "a.example", 8443, ""), "a.example:8443");
  EXPECT_EQ(hint(Reason::kNoRule, "a.example", 22, "tcp"), "tcp://a.example:22");
  EXPECT_EQ(hint(Reason::kNoRule, "a.example", 0, ""), "a.example");
  EXPECT_EQ(hint(Reason::kPrivateAddress, "a.example", 443, "tls"), "a.example=CIDR");
  EXPECT_EQ(hint(Reason::kIpLiteral, "[2606::1]", 443, "tls"), "[2606::1]");
  EXPECT_EQ(hint(Reason::kMetadataAddress, "169.254.169.254", 80, "http"), "");
  EXPECT_EQ(hint(Reason::kDeniedByRule, "a.example", 443, "tls"), "");
  EXPECT_EQ(hint(Reason::kNoRule, "a'; rm -rf", 443, "tls"), "");
  // Every hint is a rule.
  EXPECT_TRUE(policy::parse_rule(hint(Reason::kNoRule, "a.example", 22, "tcp")).ok());
}

TEST(Refusal, KeepsFailuresApartFromDenials) {
  EXPECT_EQ(status_for(Reason::kNoRule), 403);
  EXPECT_EQ(status_for(Reason::kPrivateAddress), 403);
  EXPECT_EQ(status_for(Reason::kMalformed), 400);
  EXPECT_EQ(status_for(Reason::kHostMismatch), 421);
  EXPECT_EQ(status_for(Reason::kResolveFailed), 502);
  EXPECT_EQ(status_for(Reason::kResolveTimeout), 504);
  EXPECT_EQ(status_for(Reason::kLoop), 508);
}

TEST(Resolver, ReadsTheServersOfResolvConf) {
  const auto servers = servers_of_resolv_conf(
      "# comment\nsearch a.example\nnameserver 192.0.2.53\n  nameserver\t2001:db8::53 \n"
      "nameserver fe80::1%eth0\nnameserver nonsense\noptions ndots:5\nnameserver 9.9.9.9:5353\n");
  ASSERT_EQ(servers.size(), 3U);
  EXPECT_EQ(servers[0].address.to_text(), "192.0.2.53");
  EXPECT_EQ(servers[1].address.to_text(), "2001:db8::53");
  EXPECT_EQ(servers[2].port, 5353);
}

// What the proxy lacks is not told as a fault of the server.
TEST(Dialer, TellsThatItHasNoDescriptorLeft) {
  const auto policy = policy_with("a.example.com");
  auto allowed = authorize(policy, *policy::parse_endpoint("a.example.com:443"),
                           policy::Protocol::kTls, addresses({"8.8.8.8"}), {});
  asio::io_context context;
  tcp::socket first(context, tcp::v4());  // the loop has what it needs itself
  Readiness::of(context);
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const struct rlimit none { 0, before.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  Dialer dialer;
  Dialled dialled;
  asio::co_spawn(context, dialer.dial(std::move(allowed.endpoints), FirstWord::kOurs),
                 [&](const std::exception_ptr& thrown, Dialled result) {
                   if (thrown) std::rethrow_exception(thrown);
                   dialled = std::move(result);
                 });
  context.run();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(dialled.socket.has_value());
  EXPECT_EQ(dialled.reason, Reason::kTooManyConnections);
}

}  // namespace
}  // namespace cofferdam::egressproxy
