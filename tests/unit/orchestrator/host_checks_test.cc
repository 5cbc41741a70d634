#include <gtest/gtest.h>

#include "orchestrator/host_catalogue.h"
#include "orchestrator/host_facts.h"

namespace cofferdam::orchestrator {
namespace {

TEST(HostChecks, WhatIsMissingOrAbsentAlwaysHasARemedy) {
  for (const char* engine : {"native", "docker"}) {
    bool required = false;
    for (const HostCheck& check : check_host(HostFacts{}, engine)) {
      EXPECT_FALSE(check.detail.empty()) << check.name;
      if (check.state == HostCheck::State::kGood) continue;
      EXPECT_FALSE(check.remedy.empty()) << check.name;
      required = required || check.required;
    }
    EXPECT_TRUE(required);
  }
}

TEST(HostChecks, EveryCapabilityThatIsAbsentHasARemedyAndTheWordsOfTheRefusal) {
  std::string words;
  for (const HostCheck& check : check_host(HostFacts{}, "native")) words += check.remedy + "\n";
  bool seen = false;
  for (const Capability& one : capabilities_of(HostFacts{}, HostExtras{})) {
    EXPECT_FALSE(one.group.empty());
    EXPECT_FALSE(one.check.detail.empty()) << one.check.name;
    if (one.check.state != HostCheck::State::kGood) {
      EXPECT_FALSE(one.check.remedy.empty()) << one.check.name;
    }
    if (one.check.name != "workspace") continue;
    seen = true;
    EXPECT_NE(words.find(one.check.remedy), std::string::npos);
  }
  EXPECT_TRUE(seen);
}

TEST(HostChecks, AppArmorsRestrictionIsNamed) {
  HostFacts facts;
  facts.apparmor_restricts = true;
  for (const HostCheck& check : check_host(facts, "native")) {
    if (check.name == "user namespaces") {
      EXPECT_NE(check.remedy.find("AppArmor"), std::string::npos);
      return;
    }
  }
  FAIL() << "no such check";
}

TEST(HostChecks, KernelsOlderThanFiveFifteenAreRefused) {
  const struct {
    const char* release;
    bool good;
  } cases[] = {
      {"5.14.99", false}, {"5.15.0-1", true}, {"6.0", true}, {"4.19.0", false}, {"", false}};
  for (const auto& c : cases) {
    HostFacts facts;
    facts.kernel = c.release;
    const auto checks = check_host(facts, "native");
    EXPECT_EQ(checks.front().state == HostCheck::State::kGood, c.good) << c.release;
  }
}

// Whatever this machine offers, asking it ends with an answer and leaves the process as it was.
TEST(HostChecks, AskingThisMachineChangesNothing) {
  const auto facts = gather_host_facts({});
  ASSERT_TRUE(facts.ok()) << facts.error().message();
  EXPECT_FALSE(facts->kernel.empty());
  EXPECT_TRUE(facts->user_namespaces.works || !facts->user_namespaces.detail.empty());
  const auto again = gather_host_facts({});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(facts->fuse.works, again->fuse.works);
  EXPECT_EQ(facts->nftables_nat.works, again->nftables_nat.works);
}

}  // namespace
}  // namespace cofferdam::orchestrator
