// Secrets are found by form and by value, in every spelling, wherever the pieces end.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <string>
#include <vector>

#include "orchestrator/secrets/found_secrets.h"

namespace cofferdam::orchestrator::secrets {
namespace {

// Not written as one text, so that nobody takes this file for a leak.
const std::string kGitHub = std::string("ghp") + "_" + "0123456789abcdefghijABCDEFGHIJ012345";
const std::string kAws = std::string("AKIA") + "IOSFODNN7EXAMPLE";

SecretScanner scanner(const std::vector<KnownSecret>& known = {}) {
  auto made = SecretScanner::built_in(known);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message());
  return std::move(made).value();
}

std::string redact(const SecretScanner& with, const std::string& text,
                   std::size_t piece = 1 << 20) {
  SecretRedactor redactor(with);
  std::string out;
  const auto take = [&](std::string_view bytes) {
    out += bytes;
    return Status();
  };
  for (std::size_t at = 0; at < text.size(); at += piece) {
    EXPECT_TRUE(redactor.feed(std::string_view(text).substr(at, piece), take).ok());
  }
  EXPECT_TRUE(redactor.finish(take).ok());
  return out;
}

TEST(SecretForms, AreFoundBetweenOtherText) {
  const auto with = scanner();
  EXPECT_EQ(redact(with, "a " + kGitHub + " b"), "a [redacted: a GitHub token] b");
  EXPECT_EQ(redact(with, "\"" + kAws + "\""), "\"[redacted: an AWS access key id]\"");
  EXPECT_EQ(redact(with, kGitHub), "[redacted: a GitHub token]");
  const std::string jwt = std::string("eyJ") + "hbGciOiJIUzI1NiJ9." +
                          "eyJzdWIiOiIxMjM0NTY3ODkwIn0" + "." +
                          "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U";
  EXPECT_EQ(redact(with, "Bearer " + jwt + "\n"), "Bearer [redacted: a JSON web token]\n");
  const std::string key =
      std::string("-----BEGIN ") + "PRIVATE KEY-----\n+MIIE\n+AAAA\n-----END " + "PRIVATE KEY-----";
  EXPECT_EQ(redact(with, "+" + key + "\n+rest\n"), "+[redacted: a private key]\n+rest\n");
}

TEST(SecretForms, AreNotSeenWhereTheyAreNot) {
  const auto with = scanner();
  const std::vector<std::string> none = {std::string("ghp") + "_short",
                                         "x" + kAws,
                                         kAws + "X",
                                         std::string("eyJ") + std::string(80, 'a'),
                                         "npm_config_cache",
                                         "sk-ant-",
                                         "SG.",
                                         "-----BEGIN CERTIFICATE-----",
                                         "hf_transfer",
                                         ""};
  for (const std::string& text : none) {
    EXPECT_EQ(redact(with, text), text);
  }
}

TEST(KnownSecrets, AreFoundInEverySpelling) {
  const std::string value = "p@ss w\xc3\xb6rd/9+\"x\\";
  const auto with = scanner({{"DEPLOY_PASSWORD", value}});
  const std::string gone = "[redacted: the value of DEPLOY_PASSWORD]";
  EXPECT_EQ(redact(with, "<" + value + ">"), "<" + gone + ">");
  EXPECT_EQ(redact(with, "q=p%40ss%20w%C3%B6rd%2F9%2B%22x%5C&"), "q=" + gone + "&");
  EXPECT_EQ(redact(with, "q=p%40ss%20w%c3%b6rd%2f9%2b%22x%5c&"), "q=" + gone + "&");
  EXPECT_EQ(redact(with, "x: 7040737320 77"), "x: 7040737320 77");
  EXPECT_EQ(redact(with, "x: 704073732077c3b672642f392b22785c"), "x: " + gone);
  EXPECT_EQ(redact(with, "x: 704073732077C3B672642F392B22785C"), "x: " + gone);
  EXPECT_EQ(redact(with, "{\"p@ss w\xc3\xb6rd/9+\\\"x\\\\\"}"), "{\"" + gone + "\"}");
}

std::string base64(const std::string& bytes) {
  const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  unsigned bits = 0;
  int count = 0;
  for (const char c : bytes) {
    bits = (bits << 8U) | static_cast<unsigned char>(c);
    for (count += 8; count >= 6; count -= 6)
      out += letters[(bits >> static_cast<unsigned>(count - 6)) & 63U];
  }
  if (count > 0) out += letters[(bits << static_cast<unsigned>(6 - count)) & 63U];
  return out;
}

TEST(KnownSecrets, AreFoundInBase64AtEachOfItsPlaces) {
  const auto with = scanner({{"T", "correct horse battery"}});
  for (const std::string& before :
       {std::string(), std::string("x"), std::string("xy"), std::string("user:")}) {
    for (const std::string& after : {std::string(), std::string("z"), std::string("zz")}) {
      const std::string text = base64(before + "correct horse battery" + after);
      EXPECT_NE(redact(with, text), text) << before << after;
    }
  }
}

std::string wrapped(const std::string& text, std::size_t width, const std::string& between) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += width) {
    if (at > 0) out += between;
    out += text.substr(at, width);
  }
  return out;
}

// base64(1) breaks after 76 letters, MIME mail with a CR too, xxd -p after 60 digits, YAML indents.
TEST(KnownSecrets, AreFoundInBase64AndHexadecimalThatIsBrokenIntoLines) {
  const std::string value = "correct horse battery staple";
  const auto with = scanner({{"T", value}});
  const std::string hex = "636f727265637420686f7273652062617474657279207374 61706c65";
  for (std::size_t before = 0; before < 6; ++before) {
    const std::string text = base64(std::string(before, 'x') + value + "yyy");
    for (const char* between : {"\n", "\r\n", "\n    ", "\n+", "\n-", "\x1b[m\n\x1b[32m+"}) {
      for (const std::size_t width : {std::size_t{1}, std::size_t{4}, std::size_t{7}}) {
        const std::string lines = wrapped(text, width, between);
        const std::string shown = redact(with, "k: " + lines + " end");
        EXPECT_NE(shown.find("[redacted: the value of T]"), std::string::npos) << lines;
        EXPECT_EQ(redact(with, "k: " + lines + " end", 3), shown) << lines;
      }
    }
  }
  EXPECT_EQ(redact(with, wrapped(hex.substr(0, 48) + hex.substr(49), 30, "\n")),
            "[redacted: the value of T]");
  // Lines are broken, words are not.
  EXPECT_EQ(redact(with, wrapped(hex.substr(0, 48) + hex.substr(49), 2, " ")).find("redacted"),
            std::string::npos);
  EXPECT_EQ(redact(with, wrapped(value, 4, "\n")), wrapped(value, 4, "\n"));
}

TEST(KnownSecrets, HoldNothingBackForEverWhereALineEndsInTheirFirstLetter) {
  const auto with = scanner({{"T", "correct horse battery staple"}});
  SecretRedactor redactor(with);
  std::string out;
  const auto take = [&](std::string_view bytes) {
    out += bytes;
    return Status();
  };
  // "Y" begins its base64: blank lines without end are not waited through.
  ASSERT_TRUE(redactor.feed("Y" + std::string(200, '\n'), take).ok());
  EXPECT_EQ(out.size(), 201U);
}

TEST(KnownSecrets, OfSeveralLinesAreFoundLineByLine) {
  const auto with = scanner({{"T", "first line of it\nsecond line of it\n"}});
  EXPECT_EQ(redact(with, "+second line of it\n"), "+[redacted: the value of T]\n");
}

TEST(KnownSecrets, AreNamedByTheirVariables) {
  for (const char* name :
       {"GITHUB_TOKEN", "DB_PASSWORD", "aws_secret_access_key", "SIGNING_KEY", "NPM_AUTH"}) {
    EXPECT_TRUE(names_a_secret(name)) << name;
  }
  for (const char* name : {"PATH", "HOME", "LANG", "KEYBOARD", "AUTHOR"}) {
    EXPECT_FALSE(names_a_secret(name)) << name;
  }
}

TEST(SecretRedactor, FindsThemAcrossTheBordersOfPieces) {
  const auto with = scanner({{"T", "correct horse battery"}});
  const std::string text =
      "g gh " + kGitHub + "\nco correct horse correct horse battery, " + kAws + " end gh";
  const std::string whole = redact(with, text);
  EXPECT_EQ(whole.find(kGitHub), std::string::npos);
  EXPECT_EQ(whole.find("correct horse battery"), std::string::npos);
  for (std::size_t piece = 1; piece < text.size(); ++piece) {
    EXPECT_EQ(redact(with, text, piece), whole) << piece;
  }
}

TEST(SecretRedactor, HoldsBackOnlyWhatMayBecomeASecret) {
  const auto with = scanner();
  SecretRedactor redactor(with);
  std::string out;
  const auto take = [&](std::string_view bytes) {
    out += bytes;
    return Status();
  };
  ASSERT_TRUE(redactor.feed("password: ", take).ok());
  EXPECT_EQ(out, "password: ");
  ASSERT_TRUE(redactor.feed("gh", take).ok());
  EXPECT_EQ(out, "password: ");
  EXPECT_TRUE(redactor.holds_back());
  ASSERT_TRUE(redactor.feed("?", take).ok());
  EXPECT_EQ(out, "password: gh?");
}

TEST(SecretSearch, TellsWhatItFound) {
  const auto with = scanner();
  std::vector<std::string> found;
  SecretSearch search(
      with, [&](std::string_view secret, std::string_view) { found.emplace_back(secret); });
  for (const char c : kGitHub + " " + kAws) search.feed(std::string_view(&c, 1));
  search.finish();
  EXPECT_EQ(found, (std::vector<std::string>{kGitHub, kAws}));
}

TEST(FoundSecrets, AreNeverHiddenByManyThatWereThereBefore) {
  const auto with = scanner();
  std::string many;
  for (std::size_t i = 0; i < kMaxFound; ++i) {
    std::string number = std::to_string(i);
    many += "ghp_" + std::string(36 - number.size(), 'a') + number + "\n";
  }
  const auto found_in = [&](const std::string& text) {
    FoundSecrets found;
    SecretSearch search = search_into(with, found);
    search.feed(text);
    search.finish();
    return found;
  };
  FoundSecrets same = found_in(many);
  EXPECT_EQ(same.size(), kMaxFound);
  forget_known(same, found_in(many));
  EXPECT_TRUE(same.empty());
  FoundSecrets more = found_in(many + kGitHub + "\n");
  forget_known(more, found_in(many));
  EXPECT_EQ(more.size(), 1U);
  FoundSecrets both = found_in(many + kGitHub + "\n");
  forget_known(both, found_in(many + kGitHub + "\n"));
  EXPECT_EQ(both.size(), 1U) << "nobody knows";
}

// Each begins a block without an end: 64 MiB of them took minutes.
TEST(SecretForms, OfBlocksAreLookedForNoFurtherThanTheyReach) {
  const auto with = scanner();
  std::string text;
  const std::string begin = "-----BEGIN PRIVATE KEY-----\n";
  while (text.size() < (std::size_t{64} << 20U)) text += begin;
  std::size_t longest = 0;
  SecretSearch search(with, [&](std::string_view secret, std::string_view) {
    longest = std::max(longest, secret.size());
  });
  const auto started = std::clock();
  search.feed(text);
  search.finish();
  EXPECT_LE(longest, SecretScanner::kLongest);
  EXPECT_LT(static_cast<double>(std::clock() - started) / CLOCKS_PER_SEC, 30);
}

TEST(SecretForms, OfATableThatIsWrongAreRefused) {
  for (
      const char* table :
      {"", "{}",
       R"({"version":1,"forms":[{"what":"a","prefix":["xx"],"of":"nothing","least":3,"source":"s"}]})",
       R"({"version":1,"forms":[{"what":"a","prefix":["x"],"of":"hex","least":3,"source":"s"}]})",
       R"({"version":1,"forms":[{"what":"a","prefix":["xx"],"of":"hex","source":"s"}]})",
       R"({"version":1,"forms":[{"what":"a","prefix":["xx"],"of":"hex","least":3}]})",
       R"({"version":1,"forms":[{"what":"a","prefix":["xx"],"of":"hex","least":3,"source":"s","x":1}]})"}) {
    EXPECT_FALSE(SecretScanner::make(table, {}).ok()) << table;
  }
}

}  // namespace
}  // namespace cofferdam::orchestrator::secrets
