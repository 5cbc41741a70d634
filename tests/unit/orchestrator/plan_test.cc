#include <gtest/gtest.h>

#include "orchestrator/make_plan.h"

namespace cofferdam::orchestrator {
namespace {

HostFacts good_host() {
  HostFacts facts;
  facts.kernel = "6.1.0";
  const Probe works{true, ""};
  facts.user_namespaces = facts.namespaces = facts.fuse = facts.nftables_nat = works;
  facts.seccomp = facts.bwrap = works;
  facts.uid = facts.gid = 1000;
  facts.user_name = "u";
  facts.home = "/home/u";
  facts.cgroups.detail = "v2, not delegated";
  return facts;
}

PlanRequest request() {
  PlanRequest out;
  out.sandbox_id = "0123456789abcdef";
  out.operation_id = "fedcba9876543210";
  out.sandbox_directory = "/home/u/.local/state/cofferdam/sandboxes/0123456789abcdef";
  out.manifest = *default_manifest();
  out.workspace.path = out.workspace.directory = "/home/u/p";
  out.argv = {"true"};
  return out;
}

const Json* find_mount(const Plan& plan, const std::string& name) {
  for (const Json& mount : plan.fs_policy.at("mounts")) {
    if (mount.at("name") == name) return &mount;
  }
  return nullptr;
}

bool has_line(const Plan& plan, const std::string& topic, const std::string& text) {
  for (const PlanLine& line : plan.lines) {
    if (line.topic == topic && line.text.find(text) != std::string::npos) return true;
  }
  return false;
}

TEST(Plan, IsRefusedWithTheRemedyForEachThingThatIsRequired) {
  using Break = void (*)(HostFacts*);
  const struct {
    const char* name;
    Break act;
  } cases[] = {
      {"kernel", [](HostFacts* f) { f->kernel = "5.14.9"; }},
      {"user namespaces", [](HostFacts* f) { f->user_namespaces = {}; }},
      {"namespaces", [](HostFacts* f) { f->namespaces = {}; }},
      {"FUSE", [](HostFacts* f) { f->fuse = {}; }},
      {"nftables", [](HostFacts* f) { f->nftables_nat = {}; }},
      {"seccomp", [](HostFacts* f) { f->seccomp = {}; }},
      {"bubblewrap", [](HostFacts* f) { f->bwrap = {}; }},
  };
  ASSERT_TRUE(make_plan(request(), good_host()).ok());
  for (const auto& c : cases) {
    HostFacts facts = good_host();
    c.act(&facts);
    const auto plan = make_plan(request(), facts);
    ASSERT_FALSE(plan.ok()) << c.name;
    EXPECT_NE(plan.error().message().find(c.name), std::string::npos) << plan.error().message();
    EXPECT_NE(plan.error().message().find("Remedy: "), std::string::npos);
  }
}

TEST(Plan, WithoutRulesTheNetworkIsClosedAndSaysSo) {
  const auto plan = make_plan(request(), good_host());
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->egress_policy.at("rules").empty());
  EXPECT_EQ(plan->egress_policy.at("mode"), "enforce");
  EXPECT_TRUE(has_line(*plan, "network", "nothing can be reached"));
}

TEST(Plan, RulesOfEverySourceAreInThePolicyTheLinesAndTheDigest) {
  PlanRequest with = request();
  with.manifest.rules.push_back({"a.example", "cli"});
  PresetResult preset;
  preset.name = "npm";
  preset.rules = {"tls://r.example:443=10.0.0.1/32"};
  with.presets.push_back(preset);
  const auto plan = make_plan(with, good_host());
  ASSERT_TRUE(plan.ok()) << plan.error().message();
  EXPECT_EQ(plan->egress_policy.at("rules").at(0).at("id"), "cli:1");
  EXPECT_EQ(plan->egress_policy.at("rules").at(1).at("id"), "preset:npm:1");
  EXPECT_TRUE(has_line(*plan, "rule", "tls://r.example:443=10.0.0.1/32 (preset:npm:1)"));
  EXPECT_NE(plan->manifest_digest, make_plan(request(), good_host())->manifest_digest);
}

TEST(Plan, HomeIsEmptyAndItsSensitiveNamesAreOutside) {
  const auto plan = make_plan(request(), good_host());
  ASSERT_TRUE(plan.ok());
  const Json* home = find_mount(*plan, "home");
  ASSERT_NE(home, nullptr);
  EXPECT_TRUE(home->at("lower").is_null());
  bool ssh = false;
  for (const Json& rule : home->at("rules")) {
    EXPECT_EQ(rule.at("action"), "outside");
    ssh = ssh || rule.at("pattern") == "/.ssh";
  }
  EXPECT_TRUE(ssh);
}

TEST(Plan, AWorkspaceInASensitivePartOfHomeIsRefused) {
  PlanRequest bad = request();
  bad.workspace.path = bad.workspace.directory = "/home/u/.ssh/project";
  EXPECT_FALSE(make_plan(bad, good_host()).ok());
}

TEST(Plan, ReadOnlyModeHasNoLayerForTheWorkspace) {
  PlanRequest read_only = request();
  read_only.manifest.mode = "read-only";
  const auto plan = make_plan(read_only, good_host());
  ASSERT_TRUE(plan.ok());
  const Json* workspace = find_mount(*plan, "workspace");
  EXPECT_FALSE(workspace->at("writable").get<bool>());
  EXPECT_TRUE(workspace->at("layer").is_null());
  EXPECT_TRUE(find_mount(*plan, "home")->at("writable").get<bool>());
}

TEST(Plan, ALinkedWorktreesGitDirectoryIsCopyOnWriteWithReadOnlyHooks) {
  PlanRequest linked = request();
  linked.workspace.git_directory = "/home/u/main/.git";
  const auto plan = make_plan(linked, good_host());
  ASSERT_TRUE(plan.ok());
  const Json* git = find_mount(*plan, "gitdir");
  ASSERT_NE(git, nullptr);
  EXPECT_EQ(git->at("path"), "/home/u/main/.git");
  EXPECT_TRUE(git->at("layer").is_string());
  EXPECT_EQ(git->at("rules").at(0).at("action"), "readonly");
}

TEST(Plan, AsRootTheWorkloadAndTheServicesGetIdsOfTheirOwn) {
  HostFacts root = good_host();
  root.uid = root.gid = 0;
  PlanRequest asked = request();
  EXPECT_FALSE(make_plan(asked, root).ok());
  asked.id_range = 0x70000000U;
  const auto plan = make_plan(asked, root);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->ids.range_base, 0x70000000U);
  EXPECT_EQ(plan->ids.service_uid, 0x70000000U + 65536U);
}

TEST(Plan, LimitsThatWereAskedForHoldOrAreRefusedOrAccepted) {
  PlanRequest asked = request();
  asked.manifest.memory_bytes = 1ULL << 30U;
  HostFacts facts = good_host();
  EXPECT_FALSE(make_plan(asked, facts).ok());
  facts.cgroups.controllers = {"memory"};
  EXPECT_EQ(make_plan(asked, facts)->limits.memory_bytes, 1ULL << 30U);
  facts.cgroups.controllers.clear();
  asked.manifest.accept_missing = {"memory"};
  const auto plan = make_plan(asked, facts);
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(plan->limits.memory_bytes.has_value());
  EXPECT_TRUE(has_line(*plan, "note", "memory is not limited"));
}

TEST(Plan, MountsCannotCoverWhatTheSandboxBringsNorTheState) {
  for (const char* target :
       {"/", "/proc", "/proc/x", "/dev", "/usr", "/etc", "/run/cofferdam", "/home/u/p"}) {
    PlanRequest bad = request();
    bad.manifest.mounts.push_back({"/srv/data", target, {}, false, false, false, {}});
    EXPECT_FALSE(make_plan(bad, good_host()).ok()) << target;
  }
  PlanRequest state = request();
  state.manifest.mounts.push_back({"/home/u/.local/state", "/srv/x", {}, false, false, false, {}});
  EXPECT_FALSE(make_plan(state, good_host()).ok());
  PlanRequest good = request();
  good.manifest.mounts.push_back({"/srv/data", "/srv/data", {"*.key"}, false, false, false, {}});
  const auto plan = make_plan(good, good_host());
  ASSERT_TRUE(plan.ok()) << plan.error().message();
  const Json* mount = find_mount(*plan, "mount1");
  ASSERT_NE(mount, nullptr);
  EXPECT_EQ(mount->at("rules").back().at("pattern"), "*.key");
}

TEST(PlanEnv, InheritsASafeSetAndNothingElse) {
  PlanRequest asked = request();
  asked.host_env = {{"AWS_SECRET_ACCESS_KEY", "s"},
                    {"HTTPS_PROXY", "http://p"},
                    {"LANG", "de_DE.UTF-8"},
                    {"LC_ALL", "$(evil)"},
                    {"TERM", "xterm"},
                    {"LD_PRELOAD", "/x"},
                    {"TMPDIR", "/x"},
                    {"PATH", "/evil"},
                    {"TZ", "Europe/Berlin"}};
  const auto env = make_env(asked, good_host());
  ASSERT_TRUE(env.ok());
  EXPECT_EQ(*env, (std::map<std::string, std::string>{
                      {"HOME", "/home/u"},
                      {"LANG", "de_DE.UTF-8"},
                      {"LOGNAME", "u"},
                      {"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
                      {"TZ", "Europe/Berlin"},
                      {"USER", "u"}}));
  asked.terminal = true;
  EXPECT_EQ(make_env(asked, good_host())->at("TERM"), "xterm");
}

TEST(PlanEnv, CarriesWhatIsAskedForButNeverAProxy) {
  PlanRequest asked = request();
  asked.host_env = {{"WANTED", "yes"}, {"OTHER", "no"}};
  asked.manifest.env_allow = {"WANTED", "ABSENT"};
  asked.carried_env = {{"TOKEN", "t"}};
  const auto env = make_env(asked, good_host());
  ASSERT_TRUE(env.ok());
  EXPECT_EQ(env->at("WANTED"), "yes");
  EXPECT_EQ(env->at("TOKEN"), "t");
  EXPECT_FALSE(env->contains("OTHER"));
  EXPECT_FALSE(env->contains("ABSENT"));
  for (const char* name : {"http_proxy", "HTTPS_PROXY", "all_proxy", "NO_PROXY", "npm_config_proxy",
                           "npm_config_https_proxy"}) {
    PlanRequest proxy = request();
    proxy.carried_env = {{name, "http://p"}};
    EXPECT_FALSE(make_env(proxy, good_host()).ok()) << name;
  }
}

TEST(PlanEnv, AValueOfTheLineIsNeitherInTheManifestNorInThePlansJson) {
  PlanRequest asked = request();
  asked.carried_env = {{"TOKEN", "s3cret"}};
  const auto plan = make_plan(asked, good_host());
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan_json(*plan, asked.carried_env).dump().find("s3cret"), std::string::npos);
  EXPECT_EQ(manifest_json(effective_manifest(asked)).dump().find("s3cret"), std::string::npos);
  for (const PlanLine& line : plan->lines) EXPECT_EQ(line.text.find("s3cret"), std::string::npos);
}

TEST(IdRange, TakesRootsSubordinateIdsFirstAndNeverATakenOne) {
  HostFacts facts;
  facts.subordinate_ids = {{100'000, 131'074}};
  EXPECT_EQ(*choose_id_range(facts, "0000000000000000", {}), 100'000U);
  EXPECT_EQ(*choose_id_range(facts, "0000000000000000", {100'000}), 165'537U);
  EXPECT_EQ(*choose_id_range(facts, "0000000000000000", {100'000, 165'537}), 0x70000000U);
  facts.taken_ids = {{100'005, 1}, {165'537, 1}, {0x70000000U, 1}};
  EXPECT_EQ(*choose_id_range(facts, "0000000000000000", {}), 0x70020000U);
}

TEST(IdRange, DependsOnTheSandboxAndWalksPastLiveOnes) {
  HostFacts facts;
  const auto first = choose_id_range(facts, "0000000000000007", {});
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(*first, 0x70000000U + 7 * 0x20000U);
  EXPECT_EQ(*choose_id_range(facts, "0000000000000007", {*first}), *first + 0x20000U);
  EXPECT_EQ(*choose_id_range(facts, "ffffffffffffffff", {}), 0x7FFE0000U);
  facts.taken_ids = {{0x70000000U, 0x10000000U}};
  EXPECT_FALSE(choose_id_range(facts, "0000000000000007", {}).ok());
}

TEST(HostFacts, KernelVersionsAreNumbers) {
  EXPECT_EQ(kernel_version("6.1.0-18-amd64"), std::make_pair(6, 1));
  EXPECT_EQ(kernel_version("5.15"), std::make_pair(5, 15));
  EXPECT_EQ(kernel_version("0.8.0"), std::make_pair(0, 8));
  EXPECT_EQ(kernel_version("weird"), std::make_pair(0, 0));
  EXPECT_EQ(kernel_version("x.y"), std::make_pair(0, 0));
}

TEST(Plan, AWildcardThatOpensNothingIsTold) {
  const struct {
    const char* rule;
    bool told;
  } cases[] = {{"*.abc.invalid", true},
               {"*.corp.internal", true},
               {"*.abc.example", false},
               {"a.corp.internal", false}};
  for (const auto& c : cases) {
    PlanRequest with = request();
    with.manifest.rules.push_back({c.rule, "cli"});
    const auto plan = make_plan(with, good_host());
    ASSERT_TRUE(plan.ok()) << plan.error().message();
    EXPECT_EQ(has_line(*plan, "note", "opens nothing"), c.told) << c.rule;
  }
}

TEST(PlanProcess, WhatNoEngineCanGiveIsRefusedWithTheReason) {
  const struct {
    void (*ask)(Manifest*);
    const char* told;  // empty: planned
  } cases[] = {
      {[](Manifest* m) { m->executables = {"/usr/bin"}; }, ""},
      {[](Manifest* m) { m->executables = {"/"}; }, "/ is everything"},
      {[](Manifest* m) { m->executables = {"/home/u/p/x"}; }, "can be written inside"},
      {[](Manifest* m) { m->executables = {"/home/u/bin/x"}; }, "can be written inside"},
      {[](Manifest* m) { m->executables = {"/tmp/x"}; }, "can be written inside"},
      {[](Manifest* m) { m->executables = {"/home"}; }, "/home holds /home/u"},
      {[](Manifest* m) { m->executables = {"/var"}; }, "/var holds /var/tmp"},
      {[](Manifest* m) { m->executables.assign(300, "/usr/bin/x"); }, "more than 256"},
      {[](Manifest* m) { m->capabilities = {"SETUID"}; }, "neither engine"},
      {[](Manifest* m) { m->user = "root"; }, ""},
      {[](Manifest* m) { m->seccomp = "strict"; }, ""},
  };
  HostFacts facts = good_host();
  facts.landlock_abi = 2;
  for (const auto& c : cases) {
    PlanRequest asked = request();
    c.ask(&asked.manifest);
    const auto plan = make_plan(asked, facts);
    if (*c.told == '\0') {
      EXPECT_TRUE(plan.ok()) << plan.error().message();
      continue;
    }
    ASSERT_FALSE(plan.ok()) << c.told;
    EXPECT_NE(plan.error().message().find(c.told), std::string::npos) << plan.error().message();
  }
}

TEST(PlanProcess, ExecutablesNeedLandlockOrTheWordThatItMayBeMissing) {
  PlanRequest asked = request();
  asked.manifest.executables = {"/usr/bin"};
  HostFacts facts = good_host();
  facts.landlock_abi = 1;
  const auto refused = make_plan(asked, facts);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message().find("Landlock"), std::string::npos);
  asked.manifest.accept_missing = {"executables"};
  const auto accepted = make_plan(asked, facts);
  ASSERT_TRUE(accepted.ok()) << accepted.error().message();
  EXPECT_TRUE(accepted->executables.empty());
  EXPECT_TRUE(has_line(*accepted, "note", "is not limited"));
}

TEST(PlanProcess, RootIsANameInsideNativeAndNothingElse) {
  PlanRequest asked = request();
  asked.manifest.user = "root";
  const auto plan = make_plan(asked, good_host());
  ASSERT_TRUE(plan.ok()) << plan.error().message();
  EXPECT_EQ(plan->ids.inside_uid, 0U);
  EXPECT_EQ(plan->ids.caller_uid, 1000U);
  EXPECT_EQ(plan->user_name, "root");
  EXPECT_EQ(plan->env.at("USER"), "root");
  EXPECT_EQ(plan->home, "/home/u");
}

}  // namespace
}  // namespace cofferdam::orchestrator
