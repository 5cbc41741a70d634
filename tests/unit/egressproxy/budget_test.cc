#include <gtest/gtest.h>

#include "egressproxy/budgets.h"
#include "egressproxy/connections.h"
#include "egressproxy/stream.h"
#include "tests/unit/egressproxy/socket_of.h"

namespace cofferdam::egressproxy {
namespace {

using policy::Decision;
using policy::Reason;
using policy::Verdict;
using std::chrono::milliseconds;

std::shared_ptr<const policy::EgressPolicy> policy_of(const Json& rules,
                                                      const Json& budgets = Json::object()) {
  auto parsed = policy::EgressPolicy::from_json({{"version", 1},
                                                 {"sandbox", "s"},
                                                 {"operation", "o"},
                                                 {"manifest", "m"},
                                                 {"mode", "enforce"},
                                                 {"rules", rules},
                                                 {"budgets", budgets}});
  EXPECT_TRUE(parsed.ok()) << (parsed.ok() ? "" : parsed.error().message());
  return std::make_shared<const policy::EgressPolicy>(std::move(parsed).value());
}

Json rule(const std::string& id, const std::string& text, const Json& budgets = Json::object()) {
  return {{"id", id}, {"rule", text}, {"budgets", budgets}};
}

Decision by(const std::string& id) {
  return {Verdict::kAllow, Reason::kAllowed, id};
}

policy::HostName name(const std::string& text) {
  return policy::HostName::parse(text).value();
}

const Account::Time kStart{std::chrono::hours(1)};

TEST(BudgetText, RefusesWhatIsNoBudget) {
  for (const char* text :
       {R"({"bytes_up": 0})", R"({"bytes_up": -1})", R"({"bytes_down": 1.5})",
        R"({"bytes_down": "1"})", R"({"bytes": 1})", R"({"connections": 1000001})",
        R"({"names_per_minute": 100001})", R"({"bytes_up": null})", "[]", "1"}) {
    const auto budget = policy::budget_from_json(parse_json(text).value(), "here");
    ASSERT_FALSE(budget.ok()) << text;
    EXPECT_TRUE(budget.error().message().starts_with("here: budgets: ")) << text;
  }
}

TEST(BudgetText, ReadsAndWritesEveryKey) {
  const Json json = {{"bytes_up", 1},
                     {"bytes_down", 2},
                     {"connections", 3},
                     {"connections_per_second", 4},
                     {"names_per_minute", 5}};
  const auto budget = policy::budget_from_json(json, "here");
  ASSERT_TRUE(budget.ok());
  EXPECT_EQ(policy::to_json(*budget), json);
  EXPECT_EQ(policy::to_json(policy::Budget{}), Json::object());
}

TEST(Budgets, AMeterChargesItsRuleAndItsSandboxAtOnce) {
  Budgets budgets(policy_of(
      Json::array({rule("a", "a.example.com", {{"bytes_up", 100}}), rule("b", "b.example.com")}),
      {{"bytes_up", 150}, {"bytes_down", 10}}));
  Meter a(budgets.sandbox(), budgets.account("a"));
  Meter b(budgets.sandbox(), budgets.account("b"));
  EXPECT_EQ(a.left(Direction::kUp), 100U);
  EXPECT_EQ(b.left(Direction::kUp), 150U);
  a.charge(Direction::kUp, 60);
  EXPECT_EQ(a.left(Direction::kUp), 40U);
  EXPECT_EQ(b.left(Direction::kUp), 90U);
  b.charge(Direction::kUp, 90);
  EXPECT_EQ(a.left(Direction::kUp), 0U) << "the sandbox has nothing left, whatever the rule has";
  EXPECT_EQ(a.moved(Direction::kUp), 60U);
  EXPECT_EQ(budgets.sandbox().used(Direction::kUp), 150U);
  EXPECT_EQ(a.left(Direction::kDown), 10U) << "the other way has a budget of its own";
}

TEST(Budgets, ASpentBudgetAllowsNoFurtherConnection) {
  Budgets budgets(policy_of(
      Json::array({rule("a", "a.example.com", {{"bytes_down", 5}}), rule("b", "b.example.com")})));
  ASSERT_TRUE(budgets.admit(by("a"), kStart).decision.allowed());
  Meter(budgets.sandbox(), budgets.account("a")).charge(Direction::kDown, 5);
  const Admission admission = budgets.admit(by("a"), kStart);
  EXPECT_EQ(admission.decision.reason, Reason::kQuotaExceeded);
  EXPECT_EQ(admission.decision.rule, "a");
  EXPECT_FALSE(admission.slot.has_value());
  EXPECT_TRUE(budgets.admit(by("b"), kStart).decision.allowed());
}

TEST(Budgets, APlaceIsGivenBackWhenItsConnectionIsGone) {
  Budgets budgets(policy_of(Json::array({rule("a", "a.example.com", {{"connections", 2}})})));
  Admission first = budgets.admit(by("a"), kStart);
  Admission second = budgets.admit(by("a"), kStart);
  ASSERT_TRUE(second.slot.has_value());
  EXPECT_EQ(budgets.admit(by("a"), kStart).decision.reason, Reason::kTooManyConnections);
  {
    const Slot moved = std::move(*first.slot);  // moving takes no second place
    EXPECT_EQ(budgets.account("a").live, 2U);
  }
  EXPECT_EQ(budgets.account("a").live, 1U);
  EXPECT_TRUE(budgets.admit(by("a"), kStart).decision.allowed());
}

TEST(Budgets, TheRateCountsEverySecondByItself) {
  Budgets budgets(
      policy_of(Json::array({rule("a", "a.example.com", {{"connections_per_second", 3}})})));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(budgets.admit(by("a"), kStart + milliseconds(i * 100)).decision.allowed());
  }
  EXPECT_EQ(budgets.admit(by("a"), kStart + milliseconds(999)).decision.reason,
            Reason::kRateLimited);
  EXPECT_TRUE(budgets.admit(by("a"), kStart + milliseconds(1000)).decision.allowed());
  EXPECT_EQ(budgets.admit(by("a"), kStart + milliseconds(1050)).decision.reason,
            Reason::kRateLimited)
      << "never more than three in any second";
  EXPECT_TRUE(budgets.admit(by("a"), kStart + milliseconds(1100)).decision.allowed());
}

// Case 62: <data>.allowed.com.
TEST(Budgets, NamesThatAWildcardLetsThroughAreCounted) {
  Budgets budgets(policy_of(Json::array({rule("w", "*.example.com", {{"names_per_minute", 3}})}),
                            {{"names_per_minute", 4}}));
  for (const char* text : {"a.example.com", "b.example.com", "c.example.com", "a.example.com"}) {
    EXPECT_TRUE(budgets.admit_name(name(text), by("w"), kStart).allowed()) << text;
  }
  EXPECT_EQ(budgets.admit_name(name("d.example.com"), by("w"), kStart).reason,
            Reason::kRateLimited);
  EXPECT_TRUE(budgets.admit_name(name("b.example.com"), by("w"), kStart).allowed())
      << "what was asked before tells nobody anything new";
  const auto later = kStart + std::chrono::seconds(60);
  EXPECT_TRUE(budgets.admit_name(name("d.example.com"), by("w"), later).allowed());
}

TEST(Budgets, NamesThatRulesSpellOutAreNot) {
  Budgets budgets(policy_of(Json::array({rule("a", "a.example.com"), rule("b", "b.example.com")}),
                            {{"names_per_minute", 1}}));
  EXPECT_TRUE(budgets.admit_name(name("a.example.com"), by("a"), kStart).allowed());
  EXPECT_TRUE(budgets.admit_name(name("b.example.com"), by("b"), kStart).allowed());
  EXPECT_TRUE(budgets.admit_name(name("x.example.net"), by("mode:open"), kStart).allowed());
  EXPECT_FALSE(budgets.admit_name(name("y.example.net"), by("mode:open"), kStart).allowed());
}

TEST(Budgets, ANewPolicyGoesOnWithWhatWasUsed) {
  Budgets budgets(policy_of(Json::array({rule("a", "a.example.com", {{"bytes_up", 100}})})));
  Admission held = budgets.admit(by("a"), kStart);
  Meter meter(held.slot->sandbox(), held.slot->rule());
  meter.charge(Direction::kUp, 80);
  budgets.adopt(policy_of(Json::array({rule("a", "a.example.com", {{"bytes_up", 90}})})));
  EXPECT_EQ(meter.left(Direction::kUp), 10U);
  budgets.adopt(policy_of(Json::array({rule("a", "a.example.com", {{"bytes_up", 50}})})));
  EXPECT_EQ(meter.left(Direction::kUp), 0U);
  budgets.adopt(policy_of(Json::array({rule("a", "a.example.com")})));
  EXPECT_EQ(meter.left(Direction::kUp), Account::kUnlimited - 80);
  budgets.adopt(policy_of(Json::array({rule("a", "other.example.com", {{"bytes_up", 7}})})));
  EXPECT_EQ(budgets.account("a").left[0], 7U) << "another rule under the same id begins anew";
  meter.charge(Direction::kUp, 1);  // and the old account is still there for who uses it
  EXPECT_EQ(budgets.account("a").left[0], 7U);
}

// A tunnel whose protocol was not known when it was admitted.
TEST(Budgets, WhatTurnsOutToBeAnotherRulesIsAdmittedByThatRule) {
  Budgets budgets(policy_of(Json::array(
      {rule("a", "a.example.com:8080"),
       rule("b", "http://a.example.com:8080", {{"connections", 1}, {"connections_per_second", 2}}),
       rule("c", "tcp://a.example.com:8080", {{"bytes_up", 5}})})));
  Admission held = budgets.admit(by("a"), kStart);
  const Account& charged = held.slot->rule();
  EXPECT_TRUE(budgets.readmit(by("a"), charged, kStart).allowed());
  EXPECT_EQ(budgets.account("a").opened, 1U) << "no second turn of its own rule";
  EXPECT_TRUE(budgets.readmit(by("b"), charged, kStart).allowed());
  held.slot->move_to(budgets.account("b"));
  Admission other = budgets.admit(by("a"), kStart);
  EXPECT_EQ(budgets.readmit(by("b"), other.slot->rule(), kStart).reason,
            Reason::kTooManyConnections);
  Meter(budgets.sandbox(), budgets.account("c")).charge(Direction::kUp, 5);
  EXPECT_EQ(budgets.readmit(by("c"), other.slot->rule(), kStart).reason, Reason::kQuotaExceeded);
}

// Both ends of a TCP connection on loopback.
struct Pair {
  explicit Pair(asio::io_context& context) : ours(context), theirs(context) {
    tcp::acceptor acceptor(context, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    ours.connect(acceptor.local_endpoint());
    acceptor.accept(theirs);
  }
  tcp::socket ours;
  tcp::socket theirs;
};

ConnectionInfo info_for(const std::string& rule_id) {
  return {policy::parse_endpoint("a.example.com:443").value(), policy::Protocol::kTls,
          *policy::IpAddress::parse("93.184.216.34"), by(rule_id)};
}

// A stream whose rule has these budgets.
struct Metered {
  explicit Metered(const Json& of_rule)
      : budgets(policy_of(Json::array({rule("a", "a.example.com", of_rule)}))),
        pair(context),
        peer(std::move(pair.theirs)),
        stream(socket_of(std::move(pair.ours)),
               connections.open(info_for("a"), *budgets.admit(by("a"), kStart).slot)) {}
  template <typename T>
  T run(Async<T> work) {
    T result{};
    asio::co_spawn(context, std::move(work), [&](const std::exception_ptr& thrown, T value) {
      if (thrown) std::rethrow_exception(thrown);
      result = std::move(value);
    });
    context.restart();
    context.run();
    return result;
  }
  // What the peer gets until the end, and how it ended.
  std::pair<std::string, error_code> drain_peer() {
    std::string all;
    std::array<char, 4096> buffer{};
    error_code error;
    while (!error) {
      const std::size_t count = peer.read_some(asio::buffer(buffer), error);
      all.append(buffer.data(), count);
    }
    return {all, error};
  }
  Budgets budgets;
  Connections connections;
  asio::io_context context{1};
  Pair pair;
  tcp::socket peer;
  Stream stream;
};

// Case 144: at the exact byte, and never as an orderly end.
TEST(MeteredStream, WritesUpToTheLastByteOfTheBudgetAndResets) {
  Metered metered(Json{{"bytes_up", 10}});
  EXPECT_FALSE(metered.run(metered.stream.write("12345678")));
  EXPECT_TRUE(metered.run(metered.stream.write("90abc")));
  const auto [got, end] = metered.drain_peer();
  EXPECT_EQ(got, "1234567890");
  EXPECT_EQ(end, asio::error::connection_reset);
  ASSERT_TRUE(metered.stream.connection()->ended().has_value());
  EXPECT_EQ(metered.stream.connection()->ended()->reason, Reason::kQuotaExceeded);
  EXPECT_EQ(metered.stream.bytes_written(), 10U);
}

TEST(MeteredStream, ReadsUpToTheLastByteOfTheBudgetAndResets) {
  Metered metered(Json{{"bytes_down", 10}});
  asio::write(metered.peer, asio::buffer("1234567890abc", 13));
  metered.run(metered.stream.read_more());
  EXPECT_EQ(metered.stream.buffered(), "1234567890");
  const error_code second = metered.run(metered.stream.read_more());
  EXPECT_EQ(metered.stream.buffered(), "1234567890");
  EXPECT_TRUE(second);
  EXPECT_NE(second, asio::error::eof);
  EXPECT_EQ(metered.drain_peer().second, asio::error::connection_reset);
}

TEST(MeteredStream, ABudgetThatIsUsedToTheByteStillEndsInOrder) {
  Metered metered(Json{{"bytes_down", 5}, {"bytes_up", 5}});
  asio::write(metered.peer, asio::buffer("12345", 5));
  metered.peer.shutdown(tcp::socket::shutdown_send);
  EXPECT_FALSE(metered.run(metered.stream.read_more()));
  EXPECT_EQ(metered.stream.buffered(), "12345");
  EXPECT_EQ(metered.run(metered.stream.read_more()), asio::error::eof);
  EXPECT_FALSE(metered.run(metered.stream.write("12345")));
  EXPECT_FALSE(metered.stream.connection()->ended().has_value());
}

TEST(MeteredStream, WhatAnotherConnectionUsedMeanwhileIsNotPassed) {
  Metered metered(Json{{"bytes_down", 10}});
  asio::post(metered.context, [&] {
    Meter(metered.budgets.sandbox(), metered.budgets.account("a")).charge(Direction::kDown, 7);
    asio::write(metered.peer, asio::buffer("123456", 6));
  });
  metered.run(metered.stream.read_more());
  EXPECT_EQ(metered.stream.buffered(), "123");
  EXPECT_TRUE(metered.run(metered.stream.read_more()));
  EXPECT_EQ(metered.budgets.account("a").left[1], 0U);
}

TEST(Connections, AreListedWhileTheyLiveAndCanBeEnded) {
  Metered metered(Json::object());
  ASSERT_EQ(metered.connections.size(), 1U);
  const std::uint64_t id = metered.stream.connection()->id();
  EXPECT_FALSE(metered.connections.end(id + 1, {}));
  EXPECT_TRUE(metered.connections.end(id, {Verdict::kDeny, Reason::kPolicyRevoked, "a"}));
  EXPECT_FALSE(metered.stream.is_open());
  EXPECT_EQ(metered.drain_peer().second, asio::error::connection_reset);
  EXPECT_EQ(metered.stream.connection()->ended()->reason, Reason::kPolicyRevoked);
}

}  // namespace
}  // namespace cofferdam::egressproxy
