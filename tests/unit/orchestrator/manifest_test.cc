#include "orchestrator/manifest/manifest.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <string>

#include "orchestrator/manifest/embedded.h"
#include "orchestrator/manifest/keys.h"
#include "orchestrator/manifest/quantity.h"
#include "orchestrator/manifest/read_yaml.h"

namespace cofferdam::orchestrator {
namespace {

using std::chrono::milliseconds;

TEST(Quantity, ReadsDurationsAndRefusesTheRest) {
  const struct {
    const char* text;
    std::optional<milliseconds> value;
  } cases[] = {
      {"1500ms", milliseconds(1500)},
      {"90s", milliseconds(90'000)},
      {"10m", milliseconds(600'000)},
      {"2h", milliseconds(7'200'000)},
      {"7d", milliseconds(604'800'000)},
      {"0s", std::nullopt},
      {"10", std::nullopt},
      {"", std::nullopt},
      {"-1s", std::nullopt},
      {"1.5s", std::nullopt},
      {"1 s", std::nullopt},
      {"s", std::nullopt},
      {"99999999999999999999s", std::nullopt},
      {"213503982335d", std::nullopt},  // × 86400000 wraps around 64 bits
  };
  for (const auto& c : cases) EXPECT_EQ(parse_duration(c.text), c.value) << c.text;
}

TEST(Quantity, ReadsSizesAndRefusesTheRest) {
  const struct {
    const char* text;
    std::optional<std::uint64_t> value;
  } cases[] = {
      {"4096", 4096},
      {"64KiB", 65536},
      {"512MiB", 512ULL << 20U},
      {"2GiB", 2ULL << 30U},
      {"1TiB", 1ULL << 40U},
      {"2GB", std::nullopt},
      {"2G", std::nullopt},
      {"1.5GiB", std::nullopt},
      {"", std::nullopt},
      {"GiB", std::nullopt},
      {"-1", std::nullopt},
      {"18446744073709551615", std::nullopt},
      {"17179869185GiB", std::nullopt},  // wraps
  };
  for (const auto& c : cases) EXPECT_EQ(parse_size(c.text), c.value) << c.text;
}

TEST(Quantity, TextsComeBack) {
  for (const std::uint64_t bytes : {1ULL, 1023ULL, 1024ULL, 1536ULL << 20U, 10ULL << 30U}) {
    EXPECT_EQ(parse_size(size_text(bytes)), bytes);
  }
  for (const int count : {1, 999, 1000, 90'000, 86'400'000}) {
    EXPECT_EQ(parse_duration(duration_text(milliseconds(count))), milliseconds(count));
  }
}

TEST(Manifest, ErrorsNameFileLineAndKey) {
  const struct {
    const char* text;
    const char* error;
  } cases[] = {
      {"version: 1\nbogus: 2\n", "f.yaml:2: bogus: unknown key"},
      {"version: 1\nnetwork:\n  rulez: []\n", "f.yaml:3: network.rulez: unknown key"},
      {"version: 1\ncaches: {}\n", "f.yaml:2: caches: not in this version"},
      {"version: 1\nprocess:\n  user: 0\n", "f.yaml:3: process.user: 0: not one of: caller, root"},
      {"version: 1\nprocess:\n  capabilities: [SYS_ADMIN]\n",
       "f.yaml:3: process.capabilities: SYS_ADMIN: not one of: CHOWN, DAC_OVERRIDE, FOWNER, "
       "FSETID, "
       "KILL, NET_BIND_SERVICE, SETGID, SETUID"},
      {"version: 1\nprocess:\n  executables: [bin/sh]\n",
       "f.yaml:3: process.executables: must be an absolute path in valid UTF-8"},
      {"version: 1\nmode: wide\n", "f.yaml:2: mode: wide: not one of: read-only, workspace, open"},
      {"version: 1\npresets: [npm, gem]\n",
       "f.yaml:2: presets: gem: not one of: npm, pip, cargo, go, apt, git"},
      {"version: 1\nversion: 1\n", "f.yaml:2: version: given twice"},
      {"version: 2\n", "f.yaml:1: version: 2: not one of: 1"},
      {"engine: native\n", "f.yaml:1: version: missing; write `version: 1`"},
      {"version: 1\nworkspace: []\n", "f.yaml:2: workspace: must be a map of keys"},
      {"version: 1\nworkspace:\n  hide: .env\n", "f.yaml:3: workspace.hide: must be a list"},
      {"version: 1\nprocess:\n  pids: 0\n",
       "f.yaml:3: process.pids: must be a whole number above 0"},
      {"version: 1\nfilesystem:\n  tmp: {exec: yes}\n",
       "f.yaml:3: filesystem.tmp.exec: must be true or false"},
      {"version: 1\nmounts:\n  - source: relative\n",
       "f.yaml:3: mounts[].source: must be an absolute path in valid UTF-8"},
      {"version: 1\nmounts:\n  - source: /a/../b\n",
       "f.yaml:3: mounts[].source: must be in normal form: /b"},
      {"version: 1\nenv:\n  set: {https_proxy: 'http://x'}\n",
       "f.yaml:3: env.set: https_proxy: proxy variables are never set inside: every connection "
       "ends "
       "in the gate anyway"},
  };
  for (const auto& c : cases) {
    const auto read = read_manifest_yaml(c.text, "f.yaml");
    ASSERT_FALSE(read.ok()) << c.text;
    EXPECT_EQ(read.error().message(), c.error);
  }
}

TEST(Manifest, RefusesWhatIsNoManifest) {
  for (const char* text :
       {"", "[]", "just text", "a: b: c", "version: 1\n---\nversion: 1\n",
        "version: 1\n? [a]\n: b\n", "{version: 1, network: {rules: ['*']}}",
        "{version: 1, network: {rules: [a..b]}}", "{version: 1, workspace: {hide: ['a/../b']}}",
        "{version: 1, workspace: {hide: [\"a\\0b\"]}}",
        "{version: 1, network: {resolver: {servers: [dns.example]}}}"}) {
    EXPECT_FALSE(read_manifest_yaml(text, "f.yaml").ok()) << text;
  }
}

TEST(Manifest, AliasesCannotMakeAHugeTree) {
  std::string text = "version: 1\npresets: &l0 [npm,npm,npm,npm,npm,npm,npm,npm,npm,npm]\n";
  text = "version: 1\nnetwork:\n  rules: &a [";
  for (int i = 0; i < 15'000; ++i) text += "a.example,";
  text += "]\n  deny: *a\n";
  const auto read = read_manifest_yaml(text, "f.yaml");
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message().find("too many values"), std::string::npos);
}

TEST(Manifest, TheDefaultsAreGoodAndCloseTheNetwork) {
  const auto manifest = default_manifest();
  ASSERT_TRUE(manifest.ok()) << manifest.error().message();
  EXPECT_TRUE(manifest->rules.empty());
  EXPECT_EQ(manifest->pids, 4096U);
  EXPECT_EQ(manifest->tmp_bytes, 1ULL << 30U);
  std::set<std::string> hidden;
  for (const FileRule& rule : manifest->file_rules) {
    if (rule.action == "hide") hidden.insert(rule.pattern);
  }
  for (const char* name : {".env", ".env.*", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*.ppk",
                           ".netrc", ".git-credentials", ".pgpass"}) {
    EXPECT_TRUE(hidden.contains(name)) << name;
  }
}

TEST(Manifest, AddsToListsAndReplacesTheRest) {
  auto manifest = default_manifest();
  ASSERT_TRUE(manifest.ok());
  const std::size_t before = manifest->file_rules.size();
  const auto keys = read_manifest_yaml(
      "version: 1\nworkspace: {hide: [secret.txt], quota: {bytes: 1GiB}}\n"
      "network: {rules: [a.example, 'tcp://b.example:22'], deny: [c.example]}\n"
      "process: {pids: 7, memory: 512MiB, cpus: 1.5, timeout: 90s}\n",
      "f.yaml");
  ASSERT_TRUE(keys.ok()) << keys.error().message();
  ASSERT_TRUE(apply_manifest(&*manifest, *keys, "manifest").ok());
  EXPECT_EQ(manifest->file_rules.size(), before + 1);
  EXPECT_EQ(manifest->file_rules.back().source, "manifest");
  EXPECT_EQ(manifest->quota_bytes, 1ULL << 30U);
  EXPECT_EQ(manifest->quota_entries, 2'000'000U);
  ASSERT_EQ(manifest->rules.size(), 2U);
  EXPECT_EQ(manifest->deny.size(), 1U);
  EXPECT_EQ(manifest->pids, 7U);
  EXPECT_EQ(manifest->memory_bytes, 512ULL << 20U);
  EXPECT_EQ(manifest->timeout, milliseconds(90'000));
}

TEST(Manifest, TheDigestIsOfTheRightsAndNotOfTheSpelling) {
  const auto digest = [](const char* text) {
    auto manifest = default_manifest();
    const auto keys = read_manifest_yaml(text, "f.yaml");
    EXPECT_TRUE(keys.ok() && apply_manifest(&*manifest, *keys, "manifest").ok());
    return manifest_digest(*manifest);
  };
  EXPECT_EQ(digest("version: 1\nprocess: {pids: 5, memory: 1GiB}\n"),
            digest("# words\nprocess:\n  memory: 1024MiB\n  pids: 5\nversion: 1\n"));
  EXPECT_NE(digest("version: 1\nprocess: {pids: 5}\n"), digest("version: 1\nprocess: {pids: 6}\n"));
  EXPECT_NE(digest("version: 1\nnetwork: {rules: [a.example]}\n"),
            digest("version: 1\nnetwork: {deny: [a.example]}\n"));
}

TEST(Manifest, AnImageIsOnlyForDocker) {
  auto manifest = default_manifest();
  ASSERT_TRUE(manifest.ok());
  EXPECT_FALSE(apply_manifest(&*manifest, Json{{"image", "busybox"}}, "cli").ok());
  EXPECT_TRUE(
      apply_manifest(&*manifest, Json{{"engine", "docker"}, {"image", "busybox"}}, "cli").ok());
}

// Every key that the schema describes, dotted as in the table.
void collect(const Json& schema, const std::string& path, std::set<std::string>* out) {
  if (!path.empty()) out->insert(path);
  if (schema.contains("properties")) {
    for (const auto& [name, child] : schema.at("properties").items()) {
      collect(child, path.empty() ? name : path + "." + name, out);
    }
  }
  if (schema.contains("items") && schema.at("items").contains("properties")) {
    for (const auto& [name, child] : schema.at("items").at("properties").items()) {
      collect(child, path + "[]." + name, out);
    }
  }
}

TEST(ManifestSchema, NamesExactlyTheKeysThatTheReaderTakes) {
  const auto schema = parse_json(embedded_manifest_schema());
  ASSERT_TRUE(schema.ok());
  std::set<std::string> published;
  collect(*schema, "", &published);
  std::set<std::string> taken;
  for (const KeySpec& key : manifest_keys()) {
    if (key.shape != Shape::kLater) taken.insert(std::string(key.path));
  }
  EXPECT_EQ(published, taken);
}

// The last part of each key stands in docs/manifest.md; those that are refused in its last section.
TEST(ManifestSchema, TheReferenceNamesEveryKey) {
  std::ifstream file(COFFERDAM_SOURCE_DIR "/docs/manifest.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t later = text.find("## Not in this version");
  ASSERT_NE(later, std::string::npos);
  for (const KeySpec& key : manifest_keys()) {
    const std::size_t dot = key.path.rfind('.');
    const std::string name(dot == std::string_view::npos ? key.path : key.path.substr(dot + 1));
    if (key.shape == Shape::kLater) {
      EXPECT_NE(text.find(name, later), std::string::npos) << key.path;
    } else {
      EXPECT_LT(text.find(name + ":"), later) << key.path;
    }
  }
}

TEST(ManifestSchema, NamesExactlyTheValuesThatTheReaderTakes) {
  const auto schema = parse_json(embedded_manifest_schema());
  ASSERT_TRUE(schema.ok());
  for (const char* name : {"engine", "mode"}) {
    std::string published;
    for (const Json& value : schema->at("properties").at(name).at("enum")) {
      published += (published.empty() ? "" : "|") + value.get<std::string>();
    }
    std::string taken(find_key(name)->values);
    if (const auto later = taken.find("|("); later != std::string::npos) taken.resize(later);
    EXPECT_EQ(published, taken);
  }
}

}  // namespace
}  // namespace cofferdam::orchestrator
