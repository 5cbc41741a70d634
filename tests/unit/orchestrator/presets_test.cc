#include <gtest/gtest.h>

#include <fstream>

#include "common/os/files.h"
#include "orchestrator/presets/apt.h"
#include "orchestrator/presets/cargo.h"
#include "orchestrator/presets/client_files.h"
#include "orchestrator/presets/discover.h"
#include "orchestrator/presets/git.h"
#include "orchestrator/presets/go.h"
#include "orchestrator/presets/ini_text.h"
#include "orchestrator/presets/pip.h"
#include "orchestrator/presets/toml_texts.h"

namespace cofferdam::orchestrator {
namespace {

using Texts = std::vector<std::string>;

// A resolver with one answer for every name.
ResolveHost answer(const char* address) {
  return [address](const policy::HostName&) -> Result<std::vector<policy::IpAddress>> {
    return std::vector<policy::IpAddress>{*policy::IpAddress::parse(address)};
  };
}
const ResolveHost kPublic = answer("1.1.1.1");

void expect_no_secret(const PresetResult& result) {
  const auto clean = [](const std::string& text) {
    EXPECT_EQ(text.find("t0ken"), std::string::npos) << text;
  };
  for (const auto& [name, value] : result.env) clean(value);
  for (const auto& [path, content] : result.files) clean(content);
  for (const PlanLine& line : result.lines) clean(line.text);
  for (const std::string& hint : result.hints) clean(hint);
  for (const std::string& rule : result.rules) clean(rule);
}

// --- pip

TEST(PipPreset, ALaterFileAndTheInstallSectionAndTheVariableWin) {
  const struct {
    Texts files;
    std::map<std::string, std::string> variables;
    const char* index;
  } cases[] = {
      {{"[global]\nindex-url = https://a.example/simple\n"}, {}, "https://a.example/simple"},
      {{"[global]\nindex_url: https://a.example/\n", "[global]\nindex-url=https://b.example/\n"},
       {},
       "https://b.example/"},
      {{"[install]\nindex-url=https://c.example/\n", "[global]\nindex-url=https://b.example/\n"},
       {},
       "https://c.example/"},
      {{"[install]\nindex-url=https://c.example/\n"},
       {{"PIP_INDEX_URL", "https://d.example/"}},
       "https://d.example/"},
  };
  for (const auto& c : cases) {
    const auto config = parse_pip_config(c.files, c.variables);
    ASSERT_TRUE(config.ok()) << config.error().message();
    ASSERT_TRUE(config->index);
    EXPECT_EQ(config->index->text(), c.index);
  }
  EXPECT_FALSE(parse_pip_config({"what is this\n"}, {}).ok());
  EXPECT_FALSE(parse_pip_config({"[global]\nindex-url = ftp://a.example/\n"}, {}).ok());
}

TEST(PipPreset, CarriesIndexesWithoutUserInformationAndOpensTheirPolicyTierAddresses) {
  const auto config = parse_pip_config(
      {"[global]\nindex-url = https://me:t0ken@a.example/simple\n"
       "extra-index-url =\n    https://u:t0ken@b.example:8443/x\n    http://c.example/y\n"
       "trusted-host = c.example\n"},
      {});
  ASSERT_TRUE(config.ok()) << config.error().message();
  const auto preset = pip_preset(*config, {}, answer("192.0.2.7"));
  ASSERT_TRUE(preset.ok()) << preset.error().message();
  EXPECT_EQ(preset->rules,
            (Texts{"tls://a.example:443=192.0.2.7/32", "tls://b.example:8443=192.0.2.7/32",
                   "http://c.example:80=192.0.2.7/32"}));
  EXPECT_EQ(preset->env.at("PIP_INDEX_URL"), "https://a.example/simple");
  EXPECT_EQ(preset->env.at("PIP_EXTRA_INDEX_URL"), "https://b.example:8443/x http://c.example/y");
  EXPECT_EQ(preset->env.at("PIP_TRUSTED_HOST"), "c.example");
  expect_no_secret(*preset);
}

TEST(PipPreset, WithoutAnIndexOnlyPipItselfIsAsked) {
  const auto config = parse_pip_config({}, {});
  ASSERT_TRUE(config.ok());
  const auto refused = pip_preset(*config, {}, kPublic);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message().find("pip config set"), std::string::npos);
  PipSurroundings surroundings;
  auto builtin = parse_pip_default("https://index.example/simple\nfiles.example\n");
  ASSERT_TRUE(builtin.ok());
  surroundings.builtin = *builtin;
  surroundings.project_requirements =
      "--extra-index-url=https://evil.example/simple\nflask\n-i https://index.example/simple\n";
  const auto preset = pip_preset(*config, surroundings, kPublic);
  ASSERT_TRUE(preset.ok());
  EXPECT_EQ(preset->rules, (Texts{"tls://index.example:443", "tls://files.example:443"}));
  ASSERT_EQ(preset->hints.size(), 1U);
  EXPECT_NE(preset->hints[0].find("names evil.example; it is not allowed"), std::string::npos);
  EXPECT_FALSE(parse_pip_default("https://index.example/\n").ok());
  // A mirror of the user's serves its own files: the default's host is not opened for it.
  const auto mirror =
      parse_pip_config({"[global]\nindex-url = https://mirror.example/simple\n"}, {});
  const auto mirrored = pip_preset(*mirror, surroundings, kPublic);
  ASSERT_TRUE(mirrored.ok());
  EXPECT_EQ(mirrored->rules, Texts{"tls://mirror.example:443"});
}

// --- TOML and cargo

TEST(Toml, ReadsTheTextsOfEveryWayToWriteThem) {
  const auto texts = read_toml_texts(
      "# c\na = \"x\\u00e9\\n\" # c\nb.c = 'raw\\n'\n[t . \"q.r\"]\nd = {e = \"1\", f = {g = '2'}, "
      "h = 3}\nlist = [\n  \"no\", # c\n  {k = \"v\"},\n]\nm = \"\"\"\nmany\nlines\"\"\"\nn = "
      "1979-05-27\n");
  ASSERT_TRUE(texts.ok()) << texts.error().message();
  EXPECT_EQ(texts->at({"a"}), "x\xC3\xA9\n");
  EXPECT_EQ(texts->at({"b", "c"}), "raw\\n");
  EXPECT_EQ(texts->at({"t", "q.r", "d", "e"}), "1");
  EXPECT_EQ(texts->at({"t", "q.r", "d", "f", "g"}), "2");
  EXPECT_EQ(texts->at({"t", "q.r", "m"}), "many\nlines");
  EXPECT_FALSE(texts->contains({"t", "q.r", "list"}));
}

TEST(Toml, WhatIsNoTomlIsAnErrorWithItsLine) {
  std::string deep = "a = ";
  for (int i = 0; i < 100'000; ++i) deep += '[';
  for (const std::string& text :
       {std::string("a\n"), std::string("a = \n"), std::string("a = \"x\n"), std::string("[a\n"),
        std::string("[[a]]\n"), std::string("a = {b = 1\n"), std::string("a = \"\\q\"\n"),
        std::string("a = \"\\ud800\"\n"), std::string("a = \"b\" c = \"d\"\n"),
        std::string("a = [\n"), std::string("= 1\n"), deep}) {
    const auto read = read_toml_texts(text);
    ASSERT_FALSE(read.ok()) << text.substr(0, 40);
    EXPECT_TRUE(read.error().message().starts_with("line ")) << read.error().message();
  }
}

TEST(CargoPreset, TakesTheReplacementOfTheBuiltInRegistryAndTheNamedOnes) {
  const auto config = parse_cargo_config(
      "[source.crates-io]\nreplace-with = \"first\"\n[source.first]\nreplace-with = 'mirror'\n"
      "[source.mirror]\nregistry = \"sparse+https://me:t0ken@m.example/index/\"\n"
      "[registries]\nwork = {index = \"https://w.example/git/index\", token = \"t0ken\"}\n"
      "[http]\ncainfo = \"/c.pem\"\n",
      {{"CARGO_REGISTRIES_MY_OWN_INDEX", "sparse+https://o.example:8443/"},
       {"CARGO_REGISTRIES_WORK_TOKEN", "t0ken"}});
  ASSERT_TRUE(config.ok()) << config.error().message();
  EXPECT_EQ(config->ca_file, "/c.pem");
  const auto preset = cargo_preset(*config, "CERT\n", kPublic);
  ASSERT_TRUE(preset.ok()) << preset.error().message();
  EXPECT_EQ(preset->rules,
            (Texts{"tls://m.example:443", "tls://w.example:443", "tls://o.example:8443"}));
  EXPECT_EQ(preset->files.at("/.cargo/config.toml"),
            "[source.crates-io]\nreplace-with = \"mirror\"\n[source.mirror]\nregistry = "
            "\"sparse+https://m.example/index/\"\n[registries.work]\nindex = "
            "\"https://w.example/git/index\"\n[registries.my-own]\nindex = "
            "\"sparse+https://o.example:8443/\"\n");
  EXPECT_EQ(preset->files.at(preset->env.at("CARGO_HTTP_CAINFO")), "CERT\n");
  expect_no_secret(*preset);
}

TEST(CargoPreset, RefusesWhatItCannotKnowOrCarry) {
  const auto none = parse_cargo_config("", {});
  ASSERT_TRUE(none.ok());
  const auto refused = cargo_preset(*none, "", kPublic);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message().find("replace-with"), std::string::npos);
  for (const char* text :
       {"[source.crates-io]\nreplace-with = \"x\"\n",
        "[source.crates-io]\nreplace-with = \"x\"\n[source.x]\ndirectory = \"/v\"\n",
        "[registries.\"a\\nb\"]\nindex = \"https://a.example/\"\n",
        "[registries.a]\nindex = \"ssh://git@a.example/\"\n"}) {
    EXPECT_FALSE(parse_cargo_config(text, {}).ok()) << text;
  }
}

// --- go

TEST(GoPreset, TakesProxiesAndTheChecksumDatabaseInTheirOrder) {
  const auto values = parse_go_env(
      "# c\nGOPROXY=https://u:t0ken@p.example/go|https://q.example,direct\n"
      "GOSUMDB=sum.example+abc+def https://s.example:8443/x\nGOPRIVATE=*.corp.example\nbroken\n");
  const auto preset = go_preset(values, kPublic);
  ASSERT_TRUE(preset.ok()) << preset.error().message();
  EXPECT_EQ(preset->rules,
            (Texts{"tls://p.example:443", "tls://q.example:443", "tls://s.example:8443"}));
  EXPECT_EQ(preset->env.at("GOPROXY"), "https://p.example/go|https://q.example/,direct");
  EXPECT_EQ(preset->env.at("GOSUMDB"), "sum.example+abc+def https://s.example:8443/x");
  EXPECT_EQ(preset->env.at("GOPRIVATE"), "*.corp.example");
  EXPECT_EQ(preset->env.at("GOTOOLCHAIN"), "local");
  EXPECT_EQ(preset->hints.size(), 1U);
  expect_no_secret(*preset);
}

TEST(GoPreset, ADatabaseByNameIsItsHostAndOffIsNone) {
  EXPECT_EQ(
      go_preset({{"GOPROXY", "https://p.example"}, {"GOSUMDB", "sum.example"}}, kPublic)->rules,
      (Texts{"tls://p.example:443", "tls://sum.example:443"}));
  const auto off = go_preset({{"GOPROXY", "https://p.example"}, {"GOSUMDB", "off"}}, kPublic);
  EXPECT_EQ(off->rules, Texts{"tls://p.example:443"});
  EXPECT_EQ(off->env.at("GOSUMDB"), "off");
  EXPECT_FALSE(go_preset({}, kPublic).ok());
  EXPECT_FALSE(go_preset({{"GOPROXY", "p.example"}}, kPublic).ok());
}

// --- apt

TEST(AptPreset, ReadsBothKindsOfLists) {
  EXPECT_EQ(
      uris_of_list("# deb http://no.example/ x main\n"
                   "deb [arch=amd64 signed-by=/k] http://a.example/debian stable main # c\n"
                   "deb-src https://b.example/ stable main\r\ndeb http://a.example/debian "
                   "other main\ndeb [broken http://c.example/ x\nrpm http://d.example/ x y\n"),
      (Texts{"http://a.example/debian", "https://b.example/"}));
  EXPECT_EQ(uris_of_sources("Types: deb\nURIs: http://a.example/debian\n  https://b.example/\n"
                            "Suites: stable\n# URIs: http://no.example\n\nEnabled: no\nURIs: "
                            "http://off.example/\n\nTypes: deb\nuris: http://a.example/debian "
                            "http://c.example/\n"),
            (Texts{"http://a.example/debian", "https://b.example/", "http://c.example/"}));
}

TEST(AptPreset, OneRulePerArchiveAndNoneIsRefused) {
  const auto preset =
      apt_preset({"http://a.example/debian", "http://a.example/security", "https://b.example:8443/",
                  "file:/srv/apt", "mirror://m.example/"},
                 answer("198.51.100.9"));
  ASSERT_TRUE(preset.ok()) << preset.error().message();
  EXPECT_EQ(preset->rules,
            (Texts{"http://a.example:80=198.51.100.9/32", "tls://b.example:8443=198.51.100.9/32"}));
  EXPECT_EQ(preset->hints.size(), 2U);
  EXPECT_FALSE(apt_preset({"cdrom:[x]/"}, kPublic).ok());
  EXPECT_FALSE(apt_preset({"http://a.example/"}, answer("127.0.0.1")).ok());
}

TEST(AptPreset, ReadsTheDirectoryAndNothingThatLiesInTheWorkspace) {
  const auto made = os::TempDir::create("/tmp", "apt-test-");
  ASSERT_TRUE(made.ok());
  const std::filesystem::path apt = made->path() / "apt";
  std::filesystem::create_directories(apt / "sources.list.d");
  std::ofstream(apt / "sources.list") << "deb http://a.example/ x main\n";
  std::ofstream(apt / "sources.list.d/b.sources") << "URIs: http://b.example/\n";
  std::ofstream(apt / "sources.list.d/c.list.off") << "deb http://c.example/ x main\n";
  PresetQuery query{made->path() / "project", made->path(), "/home/u", "u"};
  const auto preset = discover_apt(apt, query, kPublic);
  ASSERT_TRUE(preset.ok()) << preset.error().message();
  EXPECT_EQ(preset->rules, (Texts{"http://a.example:80", "http://b.example:80"}));
  query.workspace = apt;
  const auto refused = discover_apt(apt, query, kPublic);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message().find("lies in the workspace"), std::string::npos);
}

// --- git

TEST(GitPreset, TakesTheHostsOfTheUsersOwnRewritesAndNoPassword) {
  using namespace std::string_literals;
  const GitConfig config = parse_git_config(
      "user.name\nme\0url.https://me:t0ken@m.example/git/.insteadof\nhttps://o.example/\0"
      "url.git@k.example:.pushinsteadof\nhttps://k.example/\0remote.origin.url\n"
      "https://evil.example/\0flag\0url..insteadof\nx\0http.sslcainfo\n/c.pem\0"s);
  EXPECT_EQ(config.ca_file, "/c.pem");
  const auto preset = git_preset(config, "CERT\n", kPublic);
  ASSERT_TRUE(preset.ok()) << preset.error().message();
  EXPECT_EQ(preset->rules, Texts{"tls://m.example:443"});
  EXPECT_EQ(preset->env.at("GIT_CONFIG_COUNT"), "1");
  EXPECT_EQ(preset->env.at("GIT_CONFIG_KEY_0"), "url.https://m.example/git/.insteadOf");
  EXPECT_EQ(preset->env.at("GIT_CONFIG_VALUE_0"), "https://o.example/");
  EXPECT_EQ(preset->hints.size(), 1U);
  EXPECT_EQ(preset->files.at(preset->env.at("GIT_SSL_CAINFO")), "CERT\n");
  expect_no_secret(*preset);
  EXPECT_FALSE(git_preset({}, "", kPublic).ok());
}

}  // namespace
}  // namespace cofferdam::orchestrator
