#include "orchestrator/manifest/narrow.h"

#include <gtest/gtest.h>

#include "orchestrator/manifest/read_yaml.h"
#include "orchestrator/manifest/rights.h"
#include "orchestrator/manifest/rule_cover.h"
#include "orchestrator/manifest/stored_manifest.h"

namespace cofferdam::orchestrator {
namespace {

Json keys_of(const std::string& text) {
  const auto keys = read_manifest_yaml("version: 1\n" + text, "f.yaml");
  EXPECT_TRUE(keys.ok()) << keys.error().message() << "\n" << text;
  return *keys;
}

Manifest manifest_of(const std::string& text) {
  Manifest manifest = *default_manifest();
  const Status applied = apply_manifest(&manifest, keys_of(text), "manifest", "m.yaml");
  EXPECT_TRUE(applied.ok()) << applied.error().message();
  return manifest;
}

ManifestLimit limit_of(const std::string& text) {
  return {keys_of(text), "org.yaml"};
}

TEST(RuleCover, OnlyWhatIsPermittedInEveryRespectIsCovered) {
  const struct {
    const char* limit;
    const char* rule;
    bool covered;
  } cases[] = {
      {"a.example", "a.example", true},
      {"a.example", "tls://A.example.:443", true},
      {"*.a.example", "b.a.example", true},
      {"*.a.example", "*.b.a.example", true},
      {"*.a.example", "a.example", false},
      {"*.a.example", "b-a.example", false},
      {"b.a.example", "*.a.example", false},
      {"*.b.a.example", "*.a.example", false},
      {"a.example", "a.example:8443", false},
      {"a.example", "http://a.example:443", false},
      {"tcp://a.example:443", "a.example", false},
      {"a.example", "a.example=10.0.0.0/8", false},
      {"a.example=10.0.0.0/8", "a.example=10.1.0.0/16", true},
      {"a.example=10.1.0.0/16", "a.example=10.0.0.0/8", false},
      {"a.example=10.0.0.0/8", "a.example", true},
      {"a.example=10.0.0.0/8", "a.example=10.1.0.0/16,fd00::/16", false},
      {"203.0.113.7", "203.0.113.8", false},
      {"*.a.example", "203.0.113.8", false},
      {"nonsense://", "a.example", false},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(covers(c.limit, c.rule), c.covered) << c.limit << " / " << c.rule;
  }
}

TEST(Narrow, AKeyThatTheLimitDoesNotHaveLimitsNothing) {
  Manifest manifest =
      manifest_of("network: {rules: [a.example]}\nmode: open\nprocess: {pids: 9000}\n");
  const std::string before = manifest_digest(manifest);
  ASSERT_TRUE(narrow(&manifest, limit_of("")).ok());
  EXPECT_EQ(manifest_digest(manifest), before);
  EXPECT_TRUE(manifest.narrowed.empty());
}

TEST(Narrow, OfRulesOnlyTheCommonPartIsLeft) {
  Manifest manifest = manifest_of(
      "network: {rules: [a.example, b.example, '*.c.example', {rule: d.example, budgets: "
      "{bytes_up: 10MiB}}]}\n");
  ASSERT_TRUE(narrow(&manifest, limit_of("network: {rules: [a.example, one.c.example, {rule: "
                                         "d.example, budgets: {bytes_up: 1MiB}}], deny: "
                                         "[x.example], budgets: {connections: 5}}\n"))
                  .ok());
  std::string rules;
  for (const NetworkRule& rule : manifest.rules) rules += rule.text + " ";
  EXPECT_EQ(rules, "a.example one.c.example d.example ");
  EXPECT_EQ(manifest.rules.back().budget.bytes_up, 1ULL << 20U);
  EXPECT_EQ(manifest.budget.connections, 5U);
  EXPECT_EQ(manifest.budget.names_per_minute, 600U);
  EXPECT_EQ(manifest.deny.back().text, "x.example");
  EXPECT_EQ(manifest.narrowed.size(), 2U);
  EXPECT_EQ(manifest.narrowed[0], "org.yaml: network.rules: b.example is not permitted");
}

TEST(Narrow, AnEmptyListOfRulesPermitsNothingNotEvenByMode) {
  for (const char* asked : {"mode: open\n", "network: {mode: monitor}\n"}) {
    Manifest manifest = manifest_of(asked);
    ASSERT_TRUE(narrow(&manifest, limit_of("network: {rules: []}\n")).ok());
    EXPECT_EQ(manifest.mode, "workspace") << asked;
    EXPECT_EQ(manifest.network_mode, "enforce") << asked;
  }
  Manifest presets = manifest_of("presets: [npm, pip]\n");
  presets.rules.push_back({"r.example", "preset:npm", {}});
  presets.rules.push_back({"p.example", "preset:pip", {}});
  ASSERT_TRUE(narrow(&presets, limit_of("network: {rules: []}\npresets: [npm]\n")).ok());
  EXPECT_EQ(presets.presets, std::vector<std::string>{"npm"});
  ASSERT_EQ(presets.rules.size(), 1U);
  EXPECT_EQ(presets.rules[0].text, "r.example");
}

TEST(Narrow, OfNumbersTheSmallerOneHolds) {
  Manifest manifest = manifest_of(
      "process: {pids: 10, memory: 4GiB}\nworkspace: {quota: {bytes: 1GiB}}\nfilesystem: {tmp: "
      "{exec: true}}\naccept_missing: [memory]\nexpiry: 2030-01-01T00:00:00Z\n");
  ASSERT_TRUE(
      narrow(&manifest, limit_of("process: {pids: 100, memory: 2GiB, timeout: 1h}\nworkspace: "
                                 "{quota: {bytes: 2GiB, entries: 7}}\nfilesystem: {tmp: {exec: "
                                 "false}}\nexpiry: 2029-01-01T00:00:00Z\n"))
          .ok());
  EXPECT_EQ(manifest.pids, 10U);
  EXPECT_EQ(manifest.memory_bytes, 2ULL << 30U);
  EXPECT_EQ(manifest.timeout, std::chrono::hours(1));
  EXPECT_EQ(manifest.quota_bytes, 1ULL << 30U);
  EXPECT_EQ(manifest.quota_entries, 7U);
  EXPECT_FALSE(manifest.tmp_exec);
  EXPECT_TRUE(manifest.accept_missing.empty());
  EXPECT_EQ(manifest.expiry.substr(0, 4), "2029");
}

TEST(Narrow, NothingLiftsWhatTheLimitHides) {
  Manifest manifest = manifest_of("workspace: {writable: [.env, secret]}\n");
  ASSERT_TRUE(
      narrow(&manifest, limit_of("workspace: {hide: [secret], writable: [.netrc]}\n")).ok());
  EXPECT_EQ(manifest.file_rules.back().action, "hide");
  EXPECT_EQ(manifest.file_rules.back().pattern, "secret");
  for (const FileRule& rule : manifest.file_rules) {
    EXPECT_FALSE(rule.action == "writable" && rule.pattern == ".netrc");
  }
}

TEST(Narrow, MountsSecretsToolsAndVariablesAreThoseOfBoth) {
  Manifest manifest = manifest_of(
      "mounts: [{source: /srv/a/b, mode: cow}, {source: /srv/c}, {source: /other}]\n"
      "env: {allow: [A, B]}\n"
      "secrets: [{name: S, from: {env: HOME}, commands: [npm, sh]}, {name: T, from: {env: T}, "
      "commands: [sh]}]\n"
      "tools: [{name: git, actions: [push, pull], approval: auto, credential: S}, {name: rm}]\n"
      "workspace: {include: [src/a, docs]}\n");
  ASSERT_TRUE(
      narrow(&manifest, limit_of("mounts: [{source: /srv/a}, {source: /srv/c, hide: [x]}]\n"
                                 "env: {allow: [B, C]}\n"
                                 "secrets: [{name: S, from: {env: REAL}, commands: [npm]}]\n"
                                 "tools: [{name: git, actions: [pull], approval: ask, "
                                 "calls_per_minute: 3}]\nworkspace: {include: [src]}\n"))
          .ok());
  ASSERT_EQ(manifest.mounts.size(), 2U);
  EXPECT_FALSE(manifest.mounts[0].cow);
  EXPECT_EQ(manifest.mounts[1].hide, std::vector<std::string>{"x"});
  EXPECT_EQ(manifest.env_allow, std::vector<std::string>{"B"});
  ASSERT_EQ(manifest.secrets.size(), 1U);
  EXPECT_EQ(manifest.secrets[0].env, "REAL");
  EXPECT_EQ(manifest.secrets[0].commands, std::vector<std::string>{"npm"});
  ASSERT_EQ(manifest.tools.size(), 1U);
  EXPECT_EQ(manifest.tools[0].at("actions"), Json::array({"pull"}));
  EXPECT_EQ(manifest.tools[0].at("approval"), "ask");
  EXPECT_EQ(manifest.tools[0].at("calls_per_minute"), 3);
  EXPECT_EQ(manifest.include, std::vector<std::string>{"src/a"});
}

TEST(Narrow, WhatHasNoCommonPartIsRefused) {
  const struct {
    const char* manifest;
    const char* limit;
  } cases[] = {
      {"engine: native\n", "engine: docker\n"},
      {"engine: docker\nimage: a\n", "engine: docker\nimage: b\n"},
      {"tenant: a\n", "tenant: b\n"},
      {"workspace: {include: [a]}\n", "workspace: {include: [b]}\n"},
  };
  for (const auto& c : cases) {
    Manifest manifest = manifest_of(c.manifest);
    EXPECT_FALSE(narrow(&manifest, limit_of(c.limit)).ok()) << c.manifest;
  }
}

TEST(Narrow, BoundsWhatIsGrantedLater) {
  EXPECT_EQ(mode_fault(limit_of("mode: workspace\n"), "workspace"), "");
  EXPECT_NE(mode_fault(limit_of("mode: workspace\n"), "open"), "");
  EXPECT_NE(mode_fault(limit_of("network: {rules: [a.example]}\n"), "open"), "");
  const ManifestLimit limit =
      limit_of("network: {rules: [{rule: '*.a.example', budgets: {bytes_up: 1000}}]}\n");
  const auto permitted = permitted_rule(limit, "b.a.example");
  ASSERT_TRUE(permitted.ok());
  EXPECT_EQ(permitted->budget.bytes_up, 1000U) << "a grant is no way around a budget";
  EXPECT_FALSE(permitted_rule(limit, "evil.example").ok());
  EXPECT_TRUE(permitted_rule(limit_of("process: {pids: 5}\n"), "evil.example").ok());
}

TEST(Narrow, ToMonitorIsToOpen) {
  for (const char* most : {"mode: workspace\n", "mode: read-only\n"}) {
    Manifest manifest = manifest_of("network: {mode: monitor}\n");
    ASSERT_TRUE(narrow(&manifest, limit_of(most)).ok());
    EXPECT_EQ(manifest.network_mode, "enforce") << most;
  }
  Manifest manifest = manifest_of("network: {mode: monitor}\n");
  ASSERT_TRUE(narrow(&manifest, limit_of("process: {pids: 5}\n")).ok());
  EXPECT_EQ(manifest.network_mode, "monitor");
}

TEST(Narrow, ALinkIsFollowedOnlyWhereItIsPermittedItself) {
  const ManifestLimit limit = limit_of("mounts: [{source: /srv/pub, follow_symlink: true}]\n");
  Manifest manifest = manifest_of(
      "mounts: [{source: /srv/pub/link, target: /x, follow_symlink: true},"
      " {source: /srv/pub, target: /y, follow_symlink: true}]\n");
  ASSERT_TRUE(narrow(&manifest, limit).ok());
  ASSERT_EQ(manifest.mounts.size(), 2U);
  EXPECT_FALSE(manifest.mounts[0].follow_symlink);
  EXPECT_TRUE(manifest.mounts[1].follow_symlink);
}

TEST(Narrow, AVariableThatIsSetThereIsSetInPhasesToo) {
  Manifest manifest =
      manifest_of("phases: [{name: one, command: [make], env: {CI: phase, OWN: mine}}]\n");
  ASSERT_TRUE(narrow(&manifest, limit_of("env: {set: {CI: org}}\n")).ok());
  EXPECT_EQ(manifest.env_set.at("CI"), "org");
  EXPECT_EQ(manifest.phases[0].env, (std::map<std::string, std::string>{{"OWN", "mine"}}));
}

std::string origin_of(const Manifest& manifest, const std::string& key, const std::string& value) {
  for (const Right& right : rights_of(stored_manifest_json(manifest))) {
    if (right.key == key && right.value == value) return right.from;
  }
  return "no such right";
}

TEST(Rights, EachSaysWhereItCameFrom) {
  Manifest manifest = manifest_of(
      "network: {rules: [a.example]}\nworkspace: {hide: [x]}\nenv: {allow: [CI]}\nmounts: "
      "[{source: /srv/a}]\nfilesystem: {read: [/srv/b]}\n");
  ASSERT_TRUE(apply_manifest(&manifest, keys_of("process: {pids: 7}\n"), "cli").ok());
  manifest.rules.push_back({"r.example", "preset:npm", {}});
  EXPECT_EQ(origin_of(manifest, "network.rules", "a.example"), "m.yaml");
  EXPECT_EQ(origin_of(manifest, "network.rules", "r.example"), "preset:npm");
  EXPECT_EQ(origin_of(manifest, "workspace.hide", "x"), "m.yaml");
  EXPECT_EQ(origin_of(manifest, "workspace.hide", ".env"), "default");
  EXPECT_EQ(origin_of(manifest, "env.allow", "CI"), "m.yaml");
  EXPECT_EQ(origin_of(manifest, "process.pids", "7"), "cli");
  EXPECT_EQ(origin_of(manifest, "process.grace_ms", "5000"), "default");
  EXPECT_EQ(origin_of(manifest, "network.deny", "none"), "default");
  for (const Right& right : rights_of(stored_manifest_json(manifest))) {
    if (right.key == "mounts") {
      EXPECT_EQ(right.from, "m.yaml") << right.value;
    }
  }
}

TEST(Rights, OriginsAreNoPartOfTheDigest) {
  Manifest a = manifest_of("process: {pids: 7}\n");
  Manifest b = *default_manifest();
  ASSERT_TRUE(apply_manifest(&b, keys_of("process: {pids: 7}\n"), "manifest", "elsewhere").ok());
  EXPECT_EQ(manifest_digest(a), manifest_digest(b));
}

TEST(Rights, ADifferenceNamesWhatCameAndWhatWent) {
  const Manifest a = manifest_of("network: {rules: [a.example, b.example]}\n");
  const Manifest b = manifest_of("network: {rules: [b.example, c.example]}\nprocess: {pids: 5}\n");
  EXPECT_EQ(rights_difference(stored_manifest_json(a), stored_manifest_json(b)),
            (std::vector<std::string>{"- network.rules a.example", "+ network.rules c.example",
                                      "- process.pids 4096", "+ process.pids 5"}));
  EXPECT_TRUE(rights_difference(stored_manifest_json(a), stored_manifest_json(a)).empty());
}

TEST(Narrow, OfProgramsTheStricterHolds) {
  Manifest m = manifest_of(
      "process: {user: root, open_files: 100, file_size: 2GiB, capabilities: [SETUID, KILL],\n"
      "  executables: [/usr/bin/git, /opt/x]}\n");
  const Status done =
      narrow(&m, limit_of("process: {user: caller, seccomp: strict, open_files: 64, output: 1MiB,\n"
                          "  capabilities: [KILL], executables: [/usr/bin, /usr/sbin]}\n"));
  ASSERT_TRUE(done.ok()) << done.error().message();
  EXPECT_EQ(m.user, "caller");
  EXPECT_EQ(m.seccomp, "strict");
  EXPECT_EQ(m.open_files, 64U);
  EXPECT_EQ(m.file_size, 2ULL << 30U);
  EXPECT_EQ(m.output_bytes, 1U << 20U);
  EXPECT_EQ(m.capabilities, std::vector<std::string>{"KILL"});
  EXPECT_EQ(m.executables, std::vector<std::string>{"/usr/bin/git"});
  EXPECT_EQ(m.origins.at("process.seccomp"), "org.yaml");
}

// An empty list would mean that everything may be executed.
TEST(Narrow, ExecutablesNeverBecomeAllOfThem) {
  for (const char* own : {"name: x\n", "process: {executables: [/opt/x]}\n"}) {
    Manifest m = manifest_of(own);
    ASSERT_TRUE(narrow(&m, limit_of("process: {executables: [/usr/bin]}\n")).ok());
    EXPECT_EQ(m.executables, std::vector<std::string>{"/usr/bin"}) << own;
  }
  Manifest loose = manifest_of("process: {executables: [/usr/bin]}\n");
  ASSERT_TRUE(narrow(&loose, limit_of("process: {pids: 100}\n")).ok());
  EXPECT_EQ(loose.executables, std::vector<std::string>{"/usr/bin"});
}

constexpr const char* kEverything =
    "name: n\ntenant: t\ntask: k\ncreator: c\npolicy_version: '1'\nexpiry: 2099-01-01T00:00:00Z\n"
    "mode: workspace\npresets: [npm]\n"
    "workspace: {include: [src], hide: [a], readonly: [b], quota: {bytes: 1GiB, entries: 9}, "
    "xattr: true}\n"
    "mounts: [{source: /srv/a, target: /srv/b, mode: cow, hide: ['*.k'], classification: "
    "internal}]\n"
    "filesystem: {read: [/srv/m], tmp: {size: 1MiB, exec: false}, shm: {size: 1MiB}}\n"
    "network:\n"
    "  rules: [a.example, {rule: b.example, budgets: {bytes_up: 1MiB}}]\n"
    "  deny: ['*.c.example']\n  mixed: refuse\n  host_addresses: [198.51.100.7]\n"
    "  budgets: {connections: 5}\n"
    "  resolver: {servers: ['192.0.2.53'], timeout: 3s, hosts_file: true}\n  nat64: "
    "['64:ff9b::/96']\n"
    "  upstream_proxy: {url: 'http://proxy.example:3128', connect: address}\n"
    "env: {inherit: explicit, allow: [CI], set: {A: b}}\n"
    "process: {pids: 9, memory: 1GiB, cpus: 1.5, timeout: 9s, grace: 2s, output: 1MiB, open_files: "
    "9,\n"
    "  file_size: 1MiB, user: root, seccomp: strict, executables: [/usr], capabilities: [KILL]}\n"
    "secrets: [{name: S, from: {env: S}, as: file, commands: [npm]}]\n"
    "artifacts: [{paths: [d], owner: o, classification: public, retention: 1h}]\n"
    "phases: [{name: i, command: [npm, ci], network: {rules: [d.example], presets: [npm]}, env: "
    "{B: c},\n"
    "  timeout: 1m, on_failure: warn}, {name: j, command: [x]}]\n"
    "tools: [{name: t, actions: [read], cost: 5}]\naccept_missing: [memory]\n"
    "lifetime: {max: 8h, idle: 30m, keep: 7d}\n";

TEST(StoredManifest, IsReadBackWhole) {
  const Manifest m = manifest_of(kEverything);
  const auto again = parse_stored_manifest(stored_manifest_json(m));
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_EQ(manifest_json(*again), manifest_json(m));
  EXPECT_FALSE(parse_stored_manifest(Json::object()).ok());
  EXPECT_FALSE(parse_stored_manifest(Json()).ok());
}

TEST(StoredManifest, WhatALimitOfTodayDoesNotPermitIsTold) {
  const Manifest m = *parse_stored_manifest(
      stored_manifest_json(manifest_of("network: {rules: [a.example, b.example]}\n")));
  const struct {
    const char* limit;
    const char* told;
  } cases[] = {
      {"process: {pids: 5000}\n", ""},
      {"network: {rules: ['a.example', 'b.example', 'c.example']}\n", ""},
      {"network: {rules: [a.example]}\n", "b.example is not permitted"},
      {"process: {pids: 10}\n", "process.pids is at most 10"},
      {"network: {deny: [x.example]}\n", "x.example"},
      {"workspace: {hide: ['*.pem']}\n", "*.pem"},
      {"process: {seccomp: strict}\n", "process.seccomp is strict"},
      {"process: {executables: [/usr/bin]}\n", "/usr/bin"},
  };
  for (const auto& c : cases) {
    const auto beyond = beyond_limit(m, limit_of(c.limit));
    ASSERT_TRUE(beyond.ok()) << beyond.error().message();
    std::string all;
    for (const std::string& line : *beyond) all += line + "\n";
    if (*c.told == '\0') {
      EXPECT_EQ(all, "") << c.limit;
    }
    EXPECT_NE(all.find(c.told), std::string::npos) << c.limit << ": " << all;
  }
}

// A sandbox that was made under the limit is within it.
TEST(StoredManifest, WhatWasNarrowedIsNotNarrowedFurther) {
  const ManifestLimit limit = limit_of(
      "network: {rules: [a.example], deny: [x.example], budgets: {bytes_up: 1MiB}}\n"
      "workspace: {hide: ['*.pem'], quota: {bytes: 1GiB}}\n"
      "process: {pids: 64, seccomp: strict, executables: [/usr/bin]}\nenv: {allow: [CI]}\n");
  Manifest m = manifest_of("network: {rules: [a.example, b.example]}\nenv: {allow: [CI, X]}\n");
  ASSERT_TRUE(narrow(&m, limit).ok());
  const auto beyond = beyond_limit(*parse_stored_manifest(stored_manifest_json(m)), limit);
  ASSERT_TRUE(beyond.ok());
  EXPECT_EQ(*beyond, std::vector<std::string>{});
}

}  // namespace
}  // namespace cofferdam::orchestrator
