#include <gtest/gtest.h>

#include "orchestrator/learned_rules.h"
#include "orchestrator/manifest/learned_manifest.h"

namespace cofferdam::orchestrator {
namespace {

using Texts = std::vector<std::string>;

Json reached(const std::string& protocol, const std::string& host, int port,
             const std::string& rule = "mode:monitor") {
  return {{"event", "egress"}, {"verdict", "allow"}, {"reason", "no_rule"}, {"rule", rule},
          {"host", host},      {"port", port},       {"protocol", protocol}};
}

LearnedRules learn(const std::vector<Json>& events, const Texts& existing = {},
                   bool wildcards = false) {
  RuleLearner learner;
  learner.begin_sandbox({{"rules", Json::array()}});
  for (const Json& event : events) learner.add(event);
  return learner.result(existing, wildcards);
}

TEST(LearnedRules, AreTheShortestAndSortedByTheNameFromTheRight) {
  const auto learned =
      learn({reached("tls", "www.example.com", 443), reached("http", "b.example", 80),
             reached("tcp", "git.example.com", 22), reached("tls", "a.example", 8443),
             reached("http", "a.example", 8080), reached("tls", "a.example", 80),
             reached("tls", "www.example.com", 443), reached("tls", "8.8.8.8", 443),
             reached("tls", "[2606:4700::1111]", 443)});
  EXPECT_EQ(learned.rules, (Texts{"tcp://git.example.com:22", "www.example.com",
                                  "http://a.example:8080", "tls://a.example:80", "a.example:8443",
                                  "http://b.example", "8.8.8.8", "[2606:4700::1111]"}));
  EXPECT_TRUE(learned.notes.empty());
}

TEST(LearnedRules, OnlyWhatWasLetThroughCountsFoldedOrNot) {
  Json denied = reached("tls", "denied.example", 443);
  denied["verdict"] = "deny";
  Json failed = reached("tls", "failed.example", 443);
  failed["verdict"] = "error";
  Json dns = reached("dns", "asked.example", 0);
  dns["event"] = "dns";
  const Json folded = {{"event", "suppressed"},
                       {"of", "egress"},
                       {"count", 7},
                       {"fields", canonical_json(reached("tls", "folded.example", 443))}};
  const auto learned = learn({denied, failed, dns, folded, reached("", "silent.example", 443)});
  EXPECT_EQ(learned.rules, Texts{"folded.example"});
}

TEST(LearnedRules, HostileNamesAreLeftOutAndTold) {
  const auto learned =
      learn({reached("tls", "x' ]\nversion: 2 #", 443), reached("tls", "*.example.com", 443),
             reached("tls", "*", 443), reached("udp", "a.example", 53),
             reached("tls", "a.example=10.0.0.0/8", 443), reached("tls", "a.example", 0),
             reached("tls", "a..example", 443), reached("tls", "\x1b[2Ja.example", 443)});
  EXPECT_TRUE(learned.rules.empty());
  EXPECT_EQ(learned.notes.size(), 8U);
}

TEST(LearnedRules, WhatIsThereAlreadyIsNotLearnedAgain) {
  const std::vector<Json> events = {reached("tls", "a.example.com", 443),
                                    reached("tls", "b.example.com", 443),
                                    reached("tls", "b.example.com", 8443)};
  EXPECT_EQ(learn(events, {"*.example.com"}).rules, Texts{"b.example.com:8443"});
  EXPECT_EQ(learn(events, {"http://a.example.com"}).rules.size(), 3U);
}

TEST(LearnedRules, ManyNamesBelowAParentAreOfferedAsAWildcardAndNotWidenedSilently) {
  std::vector<Json> events;
  for (const char* name : {"a", "b", "c"}) {
    events.push_back(reached("tls", std::string(name) + ".cdn.example.com", 443));
    events.push_back(reached("tls", std::string(name) + ".co.uk", 443));
    events.push_back(reached("tls", std::string(name) + ".com", 443));
  }
  events.push_back(reached("tls", "x.other.example.com", 443));
  const auto listed = learn(events);
  EXPECT_EQ(listed.rules.size(), 10U);
  ASSERT_EQ(listed.notes.size(), 1U);
  EXPECT_NE(listed.notes[0].find("'*.cdn.example.com'"), std::string::npos);
  const auto wide = learn(events, {}, true);
  EXPECT_EQ(wide.rules, (Texts{"a.com", "b.com", "c.com", "*.cdn.example.com",
                               "x.other.example.com", "a.co.uk", "b.co.uk", "c.co.uk"}));
  EXPECT_EQ(learn(events, wide.rules).rules, Texts{})
      << "what was learned covers what it came from";
}

TEST(LearnedRules, RangesThatARuleOpenedStayOpenForTheHostsThatNeededThem) {
  RuleLearner learner;
  learner.begin_sandbox({{"rules", {{{"id", "preset:1"}, {"rule", "*.corp.example=10.0.0.0/8"}}}}});
  learner.add(reached("tls", "npm.corp.example", 443, "preset:1"));
  const auto learned = learner.result({}, false);
  EXPECT_EQ(learned.rules, Texts{"npm.corp.example=10.0.0.0/8"});
  EXPECT_EQ(learner.result({"npm.corp.example"}, false).rules.size(), 1U);
  EXPECT_TRUE(learner.result({"*.corp.example=10.0.0.0/8"}, false).rules.empty());
}

const Texts kTwo = {"a.example", "tcp://b.example:22"};

TEST(LearnedManifest, ANewOneIsAManifest) {
  const auto text = new_manifest(kTwo, "about");
  EXPECT_EQ(*rules_of(text, "f"), kTwo);
  EXPECT_EQ(*rules_of(new_manifest({}, "about"), "f"), Texts{});
}

TEST(LearnedManifest, RulesAreAddedAndEverythingElseStays) {
  struct Case {
    const char* before;
    const char* after;
  };
  const Case cases[] = {
      {"version: 1\n", "version: 1\nnetwork:\n  rules:\n    - 'n.example'\n"},
      {"version: 1", "version: 1\nnetwork:\n  rules:\n    - 'n.example'\n"},
      {"version: 1\nnetwork:\n  # why\n  rules:\n  - a.example   # first\n\n  # then\n  - "
       "b.example\n"
       "  deny: ['x.example']\nprocess: {pids: 5}\n",
       "version: 1\nnetwork:\n  # why\n  rules:\n  - a.example   # first\n\n  # then\n  - "
       "b.example\n"
       "  - 'n.example'\n  deny: ['x.example']\nprocess: {pids: 5}\n"},
      {"version: 1\nnetwork:\n    rules:\n      - rule: a.example\n        budgets:\n"
       "          bytes_up: 1KiB\n# end\n",
       "version: 1\nnetwork:\n    rules:\n      - rule: a.example\n        budgets:\n"
       "          bytes_up: 1KiB\n      - 'n.example'\n# end\n"},
      {"version: 1\nnetwork: {rules: ['a.example', \"b.example\"], mixed: drop} # x\n",
       "version: 1\nnetwork: {rules: ['a.example', \"b.example\", 'n.example'], mixed: drop} # "
       "x\n"},
      {"version: 1\nnetwork:\n  rules: []\n", "version: 1\nnetwork:\n  rules: ['n.example']\n"},
      {"version: 1\nnetwork:\n  mode: monitor\n",
       "version: 1\nnetwork:\n  rules:\n    - 'n.example'\n  mode: monitor\n"},
      {"version: 1\nnetwork: {mode: monitor}\n",
       "version: 1\nnetwork: {rules: ['n.example'], mode: monitor}\n"},
  };
  for (const Case& one : cases) {
    const auto merged = add_rules(one.before, "f", {"n.example"});
    ASSERT_TRUE(merged.ok()) << one.before << merged.error().message();
    EXPECT_EQ(*merged, one.after);
  }
}

TEST(LearnedManifest, AFormThatCannotBeAddedToIsToldAndNothingIsLost) {
  const std::string odd = "version: 1\nnetwork: {rules: [\n  &x a.example, *x ]\n  }\n";
  const auto merged = add_rules(odd, "f", {"n.example"});
  if (merged.ok()) {
    EXPECT_EQ(rules_of(*merged, "f")->size(), 3U);
  }
  EXPECT_EQ(*add_rules("version: 1\n", "f", {}), "version: 1\n");
  EXPECT_FALSE(add_rules("version: 2\n", "f", {"n.example"}).ok());
}

}  // namespace
}  // namespace cofferdam::orchestrator
