#include "egressproxy/resolver.h"

#include <gtest/gtest.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>

namespace cofferdam::egressproxy {
namespace {

policy::HostName name(const std::string& text) {
  return *policy::HostName::parse(text);
}

TEST(ResolvConf, GivesItsServersAndNothingElse) {
  const auto servers = servers_of_resolv_conf(
      "# nameserver 192.0.2.1\nnameserver 192.0.2.53\nsearch corp.example\noptions ndots:5\n"
      "nameserver 2001:db8::53\nnameserver fe80::1%eth0\nnameserver name.example\nnameserver\n"
      "  nameserver 192.0.2.54\nnameserver 192.0.2.55 junk\n");
  ASSERT_EQ(servers.size(), 4U);
  EXPECT_EQ(servers[0].address.to_text(), "192.0.2.53");
  EXPECT_EQ(servers[0].port, 53);
  EXPECT_EQ(servers[1].address.to_text(), "2001:db8::53");
}

TEST(HostsFile, IsReadByItsFormat) {
  const HostsTable table = parse_hosts_file(
      "127.0.0.1 localhost\n# 10.0.0.1 no.example\n10.0.0.7\tMirror.Example. mirror # "
      "note.example\n"
      "fd00::7 mirror.example\n10.0.0.8 mirror.example\n127.1 short.example\nfe80::1%lo "
      "zone.example\n"
      "10.0.0.9 1.2.3.4 bad..name ok.example\n\n10.0.0.10\n");
  ASSERT_TRUE(table.contains(name("mirror.example")));
  EXPECT_EQ(table.at(name("mirror.example")).size(), 3U);
  EXPECT_TRUE(table.contains(name("mirror")));
  EXPECT_TRUE(table.contains(name("ok.example")));
  for (const char* absent : {"no.example", "note.example", "short.example", "zone.example"}) {
    EXPECT_FALSE(table.contains(name(absent))) << absent;
  }
}

TEST(HostsFile, AnswersBothFamiliesBeforeAnyServer) {
  asio::io_context context;
  Resolver::Options options;
  options.servers = {{*policy::IpAddress::parse("127.0.0.1"), 9}};
  options.hosts_text = "10.0.0.7 mirror.example\n10.0.0.8 mirror.example\n";
  options.use_hosts = true;
  Resolver resolver(context, options);
  const auto four = resolver.known(name("mirror.example"), dns::Type::kA);
  ASSERT_TRUE(four.has_value());
  EXPECT_EQ(four->addresses.size(), 2U);
  const auto six = resolver.known(name("mirror.example"), dns::Type::kAaaa);
  ASSERT_TRUE(six.has_value());
  EXPECT_EQ(six->reason, policy::Reason::kAllowed);
  EXPECT_TRUE(six->addresses.empty());
  EXPECT_FALSE(resolver.known(name("other.example"), dns::Type::kA).has_value());
  EXPECT_EQ(resolver.questions_sent(), 0U);
  // A policy that came later and wants none of it.
  const auto policy = policy::EgressPolicy::parse(
      R"({"version":1,"sandbox":"s","operation":"o","manifest":"m","mode":"enforce","rules":[]})");
  ASSERT_TRUE(policy.ok());
  resolver.adopt(*policy);
  EXPECT_FALSE(resolver.known(name("mirror.example"), dns::Type::kA).has_value());
}

TEST(Resolver, WithoutServersFailsAndAsksNobody) {
  asio::io_context context;
  Resolver resolver(context, {});
  Resolution found;
  asio::co_spawn(context, resolver.resolve(name("a.example"), false),
                 [&found](const std::exception_ptr&, Resolution one) { found = std::move(one); });
  context.run();
  EXPECT_EQ(found.reason, policy::Reason::kResolveFailed);
  EXPECT_EQ(resolver.questions_sent(), 0U);
}

Async<void> resolve_into(Resolver& resolver, Resolution& found) {
  co_await asio::this_coro::throw_if_cancelled(false);  // as a session does
  found = co_await resolver.resolve(name("a.example"), false);
}

// The service ends while a name server is silent: there is no lookup to look at.
TEST(Resolver, ACancelledResolutionFindsNothing) {
  asio::io_context context;
  udp::socket silent(context, udp::endpoint(asio::ip::address_v4::loopback(), 0));
  Resolver::Options options;
  options.servers = {{*policy::IpAddress::parse("127.0.0.1"), silent.local_endpoint().port()}};
  Resolver resolver(context, options);
  Resolution found;
  found.reason = policy::Reason::kAllowed;
  bool ended = false;
  asio::cancellation_signal cancel;
  asio::co_spawn(context, resolve_into(resolver, found),
                 asio::bind_cancellation_slot(
                     cancel.slot(), [&ended](const std::exception_ptr&) { ended = true; }));
  asio::steady_timer later(context, milliseconds(50));
  later.async_wait(
      [&cancel](const error_code&) { cancel.emit(asio::cancellation_type::terminal); });
  while (!ended && context.run_one() > 0) {
  }
  EXPECT_TRUE(ended);
  EXPECT_EQ(found.reason, policy::Reason::kResolveTimeout);
  EXPECT_TRUE(found.addresses.empty());
}

}  // namespace
}  // namespace cofferdam::egressproxy
