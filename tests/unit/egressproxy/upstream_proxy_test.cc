#include "egressproxy/upstream_proxy.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/unit/egressproxy/socket_of.h"

namespace cofferdam::egressproxy {
namespace {

using policy::Reason;

Result<policy::EgressPolicy> policy_by_name() {
  return policy::EgressPolicy::parse(
      R"({"version":1,"sandbox":"s","operation":"o","manifest":"m","mode":"enforce",
          "rules":[{"id":"r:1","rule":"site.example"}],
          "deny":[{"id":"d:1","rule":"bad.example"}],
          "upstream_proxy":{"url":"http://u:p@10.0.0.1:3128","connect":"name"},
          "accept_missing":["address_check"]})");
}

TEST(UpstreamProxy, OnlyDecidedNamesBecomeTargets) {
  const auto policy = policy_by_name();
  ASSERT_TRUE(policy.ok()) << policy.error().message();
  const auto decided =
      authorize_unresolved(*policy, *policy::parse_endpoint("site.example:443"), std::nullopt);
  ASSERT_TRUE(decided.target.has_value());
  EXPECT_EQ(decided.target->authority(), "site.example:443");
  EXPECT_EQ(decided.decision.rule, "r:1");
  EXPECT_EQ(write_connect(*policy->upstream_proxy(), *decided.target),
            "CONNECT site.example:443 HTTP/1.1\r\nHost: site.example:443\r\n"
            "Proxy-Authorization: Basic dTpw\r\n\r\n");
  for (const char* refused : {"other.example:443", "site.example:22", "bad.example:443",
                              "10.0.0.1:3128", "8.8.8.8:443", "localhost:443"}) {
    const auto one = authorize_unresolved(*policy, *policy::parse_endpoint(refused), std::nullopt);
    EXPECT_FALSE(one.target.has_value()) << refused;
    EXPECT_FALSE(one.decision.allowed()) << refused;
  }
}

TEST(UpstreamProxy, NoNameIsATargetWhereAddressesAreChecked) {
  const auto policy = policy::EgressPolicy::parse(
      R"({"version":1,"sandbox":"s","operation":"o","manifest":"m","mode":"enforce",
          "rules":[{"id":"r:1","rule":"site.example"}],
          "upstream_proxy":{"url":"http://10.0.0.1:3128"}})");
  ASSERT_TRUE(policy.ok());
  const auto one =
      authorize_unresolved(*policy, *policy::parse_endpoint("site.example:443"), std::nullopt);
  EXPECT_FALSE(one.target.has_value());
  EXPECT_FALSE(one.decision.allowed());
}

TEST(UpstreamProxy, IsDialledAtCheckedAddressesOnly) {
  const auto proxy = policy::parse_upstream_proxy("http://proxy.example:3128");
  ASSERT_TRUE(proxy.ok());
  const std::set<policy::IpAddress> own = {*policy::IpAddress::parse("11.0.0.2")};
  const std::vector<policy::IpAddress> found = {
      *policy::IpAddress::parse("127.0.0.1"), *policy::IpAddress::parse("10.0.0.1"),
      *policy::IpAddress::parse("11.0.0.2"), *policy::IpAddress::parse("169.254.169.254")};
  const auto authorization = authorize_proxy(*proxy, found, own);
  ASSERT_EQ(authorization.endpoints.size(), 1U);
  EXPECT_EQ(authorization.endpoints[0].address().to_text(), "10.0.0.1");
  EXPECT_EQ(authorization.endpoints[0].port(), 3128);
  EXPECT_TRUE(authorize_proxy(*proxy, {}, own).endpoints.empty());
}

TEST(UpstreamProxy, ItsAnswerIsRetryableOrFinal) {
  struct Case {
    const char* head;
    Reason reason;
  };
  const Case cases[] = {
      {"HTTP/1.1 200 Connection established\r\n\r\n", Reason::kAllowed},
      {"HTTP/1.0 200 OK\r\nVia: 1.0 proxy\r\n\r\n", Reason::kAllowed},
      {"HTTP/1.1 204 No Content\r\n\r\n", Reason::kAllowed},
      {"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n",
       Reason::kUpstreamProxyRefused},
      {"HTTP/1.1 403 Forbidden\r\n\r\n", Reason::kUpstreamProxyRefused},
      {"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", Reason::kUpstreamProxyRefused},
      {"HTTP/1.1 502 Bad Gateway\r\n\r\n", Reason::kUpstreamProxyFailed},
      {"HTTP/1.1 504 Gateway Timeout\r\n\r\n", Reason::kUpstreamProxyFailed},
      {"HTTP/1.1 429 Too Many Requests\r\n\r\n", Reason::kUpstreamProxyFailed},
      {"SSH-2.0-x\r\n\r\n", Reason::kUpstreamProxyFailed},
      {"HTTP/1.1 099 Odd\r\n\r\n", Reason::kUpstreamProxyFailed},
      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
       Reason::kUpstreamProxyFailed},
      {"\r\n\r\n", Reason::kUpstreamProxyFailed}};
  for (const Case& c : cases) {
    EXPECT_EQ(policy::to_text(judge_connect_response(c.head).reason), policy::to_text(c.reason))
        << c.head;
  }
}

// A pair of connected sockets of which the test is the proxy.
struct Pair {
  asio::io_context context;
  tcp::socket near{context};
  tcp::socket far{context};
  Pair() {
    tcp::acceptor acceptor(context, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    near.connect(acceptor.local_endpoint());
    far = acceptor.accept();
  }
};

Reason tunnel_through(std::vector<std::string> pieces, std::string* rest, bool end) {
  Pair pair;
  Socket near = socket_of(std::move(pair.near));
  Reason found = Reason::kAllowed;
  asio::co_spawn(
      pair.context, open_tunnel(near, "CONNECT a:1 HTTP/1.1\r\n\r\n"),
      [&found](const std::exception_ptr&, TunnelOutcome outcome) { found = outcome.reason; });
  for (const std::string& piece : pieces) {
    asio::write(pair.far, asio::buffer(piece));
    pair.context.restart();
    pair.context.run_for(milliseconds(20));
  }
  if (end) pair.far.shutdown(tcp::socket::shutdown_send);
  pair.context.restart();
  pair.context.run();
  error_code ignored;
  pair.far.shutdown(tcp::socket::shutdown_send, ignored);
  std::array<char, 256> buffer{};
  while (rest != nullptr) {
    const os::Moved moved = near.receive(buffer);
    if (moved.state == os::Moving::kWouldBlock) continue;
    if (moved.state != os::Moving::kMoved) break;
    rest->append(buffer.data(), moved.count);
  }
  return found;
}

TEST(UpstreamProxy, TakesTheResponseToItsLastByteAndNoFurther) {
  const std::string head = "HTTP/1.1 200 OK\r\nVia: x\r\n\r\n";
  const std::string banner = "SSH-2.0-server\r\n\r\nmore";
  for (std::size_t cut = 0; cut <= head.size(); ++cut) {
    std::string rest;
    std::vector<std::string> pieces;
    if (cut > 0) pieces.push_back(head.substr(0, cut));
    pieces.push_back(head.substr(cut) + banner);
    EXPECT_EQ(tunnel_through(pieces, &rest, true), Reason::kAllowed) << cut;
    EXPECT_EQ(rest, banner) << cut;
  }
}

TEST(UpstreamProxy, FailsWhenTheProxyEndsOrNeverEndsItsHead) {
  EXPECT_EQ(tunnel_through({}, nullptr, true), Reason::kUpstreamProxyFailed);
  EXPECT_EQ(tunnel_through({"HTTP/1.1 200 OK\r\n"}, nullptr, true), Reason::kUpstreamProxyFailed);
  EXPECT_EQ(tunnel_through({"HTTP/1.1 200 OK\r\nX: " + std::string(40000, 'x')}, nullptr, true),
            Reason::kUpstreamProxyFailed);
}

}  // namespace
}  // namespace cofferdam::egressproxy
