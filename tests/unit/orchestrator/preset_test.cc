#include <gtest/gtest.h>

#include "orchestrator/presets/presets.h"

namespace cofferdam::orchestrator {
namespace {

// A resolver with one answer.
ResolveHost answers(std::vector<std::string> texts) {
  return [texts =
              std::move(texts)](const policy::HostName&) -> Result<std::vector<policy::IpAddress>> {
    std::vector<policy::IpAddress> out;
    for (const std::string& text : texts) out.push_back(*policy::IpAddress::parse(text));
    if (out.empty()) return Error("no such name");
    return out;
  };
}

NpmConfig config_for(const char* url) {
  return *parse_npm_config(Json{{"registry", url}}.dump());
}

TEST(RegistryUrl, DropsUserInformationAndKeepsThePath) {
  const struct {
    const char* in;
    const char* url;
    const char* rule;
  } cases[] = {
      {"https://r.example/", "https://r.example/", "tls://r.example:443"},
      {"https://r.example", "https://r.example/", "tls://r.example:443"},
      {"https://me:secret@r.example/npm/", "https://r.example/npm/", "tls://r.example:443"},
      {"https://me:se@cret@r.example:8443/npm", "https://r.example:8443/npm",
       "tls://r.example:8443"},
      {"http://R.Example:80/x?y#z", "http://r.example/x", "http://r.example:80"},
      {"https://[2001:db8::1]:444/", "https://[2001:db8::1]:444/", "tls://[2001:db8::1]:444"},
  };
  for (const auto& c : cases) {
    const auto url = parse_registry_url(c.in);
    ASSERT_TRUE(url.ok()) << c.in << url.error().message();
    EXPECT_EQ(url->text(), c.url);
    EXPECT_EQ(url->rule(), c.rule);
  }
}

TEST(RegistryUrl, RefusesWhatIsNoPlainUrlAndNeverShowsASecret) {
  for (const char* text :
       {"", "ftp://r.example/", "r.example", "https://", "https:///x", "https://u:tok3n@/x",
        "https://u:tok3n@bad..host/", "https://r.example:99999/",
        "https://u:tok3n@r.example\\@evil.example/", "https://r ex/", "https://0x7f.1/"}) {
    const auto url = parse_registry_url(text);
    ASSERT_FALSE(url.ok()) << text;
    EXPECT_EQ(url.error().message().find("tok3n"), std::string::npos);
  }
}

TEST(NpmPreset, APublicRegistryIsOneRuleWithoutAddresses) {
  const auto preset =
      npm_preset(config_for("https://r.example/"), {}, answers({"1.1.1.1", "2606:4700::1"}));
  ASSERT_TRUE(preset.ok());
  EXPECT_EQ(preset->rules, std::vector<std::string>{"tls://r.example:443"});
  EXPECT_EQ(preset->env.at("npm_config_registry"), "https://r.example/");
  EXPECT_TRUE(preset->files.empty());
  EXPECT_TRUE(preset->hints.empty());
}

TEST(NpmPreset, OpensExactlyThePolicyTierAddressesWithALineOfItsOwn) {
  const auto preset =
      npm_preset(config_for("https://r.example/"), {}, answers({"10.1.2.3", "1.1.1.1", "fd12::1"}));
  ASSERT_TRUE(preset.ok());
  EXPECT_EQ(preset->rules, std::vector<std::string>{"tls://r.example:443=10.1.2.3/32,fd12::1/128"});
  ASSERT_EQ(preset->lines.size(), 2U);
  EXPECT_NE(preset->lines[1].text.find("10.1.2.3/32,fd12::1/128"), std::string::npos);
}

TEST(NpmPreset, AFloorAddressIsRefused) {
  for (const char* address :
       {"127.0.0.1", "169.254.169.254", "::1", "fe80::1", "224.0.0.1", "100.100.100.200"}) {
    const auto preset =
        npm_preset(config_for("https://r.example/"), {}, answers({"1.1.1.1", address}));
    ASSERT_FALSE(preset.ok()) << address;
    EXPECT_NE(preset.error().message().find(address), std::string::npos);
  }
  EXPECT_FALSE(npm_preset(config_for("https://127.0.0.1:4873/"), {}, answers({})).ok());
}

TEST(NpmPreset, TakesScopedRegistriesAndNoTokens) {
  const auto config = parse_npm_config(
      R"({"registry":"https://r.example/","@work:registry":"https://u:p@private.example:8443/n/",
          "//private.example/:_authToken":"tok3n","_auth":"tok3n"})");
  ASSERT_TRUE(config.ok());
  const auto preset = npm_preset(*config, {}, answers({"1.1.1.1"}));
  ASSERT_TRUE(preset.ok());
  EXPECT_EQ(preset->rules,
            (std::vector<std::string>{"tls://r.example:443", "tls://private.example:8443"}));
  for (const auto& [name, value] : preset->env) EXPECT_EQ(value.find("tok3n"), std::string::npos);
  EXPECT_EQ(preset->files.at(preset->env.at("npm_config_userconfig")),
            "@work:registry=https://private.example:8443/n/\n");
  EXPECT_FALSE(
      parse_npm_config(R"({"registry":"https://r.example/","@a\nb:registry":"https://r.example/"})")
          .ok());
}

TEST(NpmPreset, TheRepositorysOwnRegistryIsAHintAndNoRight) {
  NpmSurroundings surroundings;
  surroundings.project_npmrc =
      "# c\nregistry = \"https://evil.example/\"\n@x:registry=http://other.example:8080/\n"
      "//evil.example/:_authToken=abc\nregistry=https://r.example/\n";
  const auto preset =
      npm_preset(config_for("https://r.example/"), surroundings, answers({"1.1.1.1"}));
  ASSERT_TRUE(preset.ok());
  EXPECT_EQ(preset->rules, std::vector<std::string>{"tls://r.example:443"});
  ASSERT_EQ(preset->hints.size(), 2U);
  EXPECT_EQ(preset->hints[0],
            "the repository's own .npmrc names evil.example; it is not allowed; to allow: --allow "
            "evil.example");
  EXPECT_NE(preset->hints[1].find("--allow http://other.example:8080"), std::string::npos);
  EXPECT_EQ(preset->env.at("npm_config_registry"), "https://r.example/");
}

TEST(NpmPreset, CarriesCertificatesButNeverAPrivateKey) {
  const std::string certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
  const std::string bundle =
      "text\n-----BEGIN PRIVATE KEY-----\nSECRET\n-----END PRIVATE KEY-----\n" + certificate +
      "tail\n" + certificate;
  EXPECT_EQ(certificates_of(bundle), certificate + certificate);
  EXPECT_EQ(certificates_of("-----BEGIN CERTIFICATE-----\ncut"), "");

  NpmSurroundings surroundings;
  surroundings.ca_bundle = certificate;
  auto preset = npm_preset(config_for("https://r.example/"), surroundings, answers({"1.1.1.1"}));
  ASSERT_TRUE(preset.ok());
  ASSERT_EQ(preset->files.size(), 1U);
  EXPECT_EQ(preset->env.at("npm_config_cafile"), preset->files.begin()->first);
  // npm's cafile replaces npm's roots, so what only adds to node's must not become one.
  surroundings.extra_only = true;
  preset = npm_preset(config_for("https://r.example/"), surroundings, answers({"1.1.1.1"}));
  ASSERT_TRUE(preset.ok());
  EXPECT_FALSE(preset->env.contains("npm_config_cafile"));
  EXPECT_TRUE(preset->env.contains("NODE_EXTRA_CA_CERTS"));
}

TEST(Preset, UnknownOnesAreRefused) {
  const auto preset = discover_preset("gem", {});
  ASSERT_FALSE(preset.ok());
  EXPECT_NE(preset.error().message().find("no such preset"), std::string::npos);
}

}  // namespace
}  // namespace cofferdam::orchestrator
