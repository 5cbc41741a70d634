#include "common/policy/fs_rules.h"

#include <gtest/gtest.h>

#include "common/policy/name_glob.h"

namespace cofferdam::policy {
namespace {

struct RuleText {
  const char* action;
  const char* pattern;
};

FsRules make(const std::vector<RuleText>& rules, FsRules::Names names = FsRules::Names::kExact) {
  Json array = Json::array();
  for (std::size_t i = 0; i < rules.size(); ++i) {
    array.push_back({{"id", "r" + std::to_string(i)},
                     {"action", rules[i].action},
                     {"pattern", rules[i].pattern}});
  }
  auto parsed = FsRules::parse(array, names);
  EXPECT_TRUE(parsed.ok()) << (parsed.ok() ? "" : parsed.error().message());
  return parsed.ok() ? *parsed : FsRules();
}

struct PatternCase {
  const char* pattern;
  const char* path;
  bool is_dir;
  bool matches;
};

// Expectations are those of git check-ignore.
constexpr PatternCase kPatterns[] = {
    {".env", ".env", false, true},
    {".env", "a/b/.env", false, true},
    {".env", ".envx", false, false},
    {".env", "x.env", false, false},
    {".env", ".ENV", false, false},
    {".env", ".env/below", false, true},
    {"/.env", ".env", false, true},
    {"/.env", "a/.env", false, false},
    {"a/.env", "a/.env", false, true},
    {"a/.env", "b/a/.env", false, false},
    {"build/", "build", true, true},
    {"build/", "build", false, false},
    {"build/", "x/build", true, true},
    {"build/", "build/x", false, true},
    {"build/", "x/build/y/z", false, true},
    {"*.ppk", "k.ppk", false, true},
    {"*.ppk", "d/k.ppk", false, true},
    {"*.ppk", ".ppk", false, true},
    {"*.ppk", "k.ppkx", false, false},
    {"a*b*c", "axxbyyc", false, true},
    {"a*b*c", "axxbyy", false, false},
    {"a/*", "a/b", false, true},
    {"a/*", "a/b/c", false, true},  // by its parent a/b
    {"a/*.c", "a/b/x.c", false, false},
    {"a/**", "a", true, false},
    {"a/**", "a/b", false, true},
    {"a/**", "a/b/c/d", false, true},
    {".git/hooks/**", ".git/hooks", true, false},
    {".git/hooks/**", ".git/hooks/pre-commit", false, true},
    {".git/hooks/**", "sub/.git/hooks/pre-commit", false, false},
    {"**/foo", "foo", false, true},
    {"**/foo", "a/b/foo", false, true},
    {"**/foo/bar", "foo/bar", false, true},
    {"**/foo/bar", "x/y/foo/bar", false, true},
    {"**/foo/bar", "x/foo/y/bar", false, false},
    {"a/**/b", "a/b", false, true},
    {"a/**/b", "a/x/b", false, true},
    {"a/**/b", "a/x/y/b", false, true},
    {"a/**/b", "a/x/y/c", false, false},
    {"a/**/b/**/c", "a/b/b/x/c", false, true},
    {"**", "anything/at/all", false, true},
    {"/**", "x", false, true},
    {"?", "a", false, true},
    {"?", "ab", false, false},
    {"[a-c]x", "bx", false, true},
    {"[!a-c]x", "bx", false, false},
    {"[^a-c]x", "dx", false, true},
    {"[]-]x", "]x", false, true},
    {"[]-]x", "-x", false, true},
    {"[[:digit:]]x", "7x", false, true},
    {"[[:digit:]]x", "ax", false, false},
    {"\\*", "*", false, true},
    {"\\*", "a", false, false},
    {"\\!important", "!important", false, true},
    {"a b", "a b", false, true},
    {"\xff*", "\xff\xfe", false, true},
    {"**a", "xxa", false, true},
    {"x/a**b", "x/a1b", false, true},
};

TEST(FsRules, MatchesAsGitignoreDoes) {
  for (const PatternCase& c : kPatterns) {
    const FsRules rules = make({{"hide", c.pattern}});
    EXPECT_EQ(!rules.decide(c.path, c.is_dir).visible(), c.matches)
        << c.pattern << " on " << c.path;
  }
}

struct OrderCase {
  std::vector<RuleText> rules;
  const char* path;
  FsAction action;
  const char* rule;
};

TEST(FsRules, LastMatchWinsAndHiddenParentsHideAll) {
  const std::vector<RuleText> env = {
      {"hide", ".env"}, {"hide", ".env.*"}, {"writable", ".env.example"}};
  const OrderCase cases[] = {
      {env, ".env", FsAction::kHide, "r0"},
      {env, ".env.local", FsAction::kHide, "r1"},
      {env, ".env.example", FsAction::kWritable, "r2"},
      {env, "a/.env.example", FsAction::kWritable, "r2"},
      {env, "readme", FsAction::kNone, ""},
      {env, "", FsAction::kNone, ""},
      {{{"hide", "d/"}, {"writable", "d/keep"}}, "d/keep", FsAction::kHide, "r0"},
      {{{"hide", "d/"}, {"writable", "d/"}}, "d/keep", FsAction::kWritable, "r1"},
      {{{"readonly", "v/"}, {"writable", "v/cache/"}}, "v/cache/x", FsAction::kWritable, "r1"},
      {{{"readonly", "v/"}, {"writable", "v/cache/"}}, "v/other", FsAction::kReadonly, "r0"},
      {{{"writable", "v/cache/"}, {"readonly", "v/"}}, "v/cache/x", FsAction::kReadonly, "r1"},
      {{{"readonly", "v/"}, {"hide", "key"}}, "v/key", FsAction::kHide, "r1"},
      {{{"outside", "/.ssh"}}, ".ssh/id", FsAction::kOutside, "r0"},
  };
  for (const OrderCase& c : cases) {
    const FsRules rules = make(c.rules);
    const FsDecision d = rules.decide(c.path, false);
    EXPECT_EQ(d.action, c.action) << c.path;
    EXPECT_EQ(d.rule, c.rule) << c.path;
  }
}

TEST(FsRules, PathsThatAreNoneAreRefused) {
  const FsRules rules = make({{"hide", ".env"}});
  for (const char* path : {"..", "a/../.env", "./x", "a//b", "/a", "a/", "a/.", "../x"}) {
    const FsDecision d = rules.decide(path, false);
    EXPECT_EQ(d.action, FsAction::kOutside) << path;
    EXPECT_FALSE(d.changeable());
    EXPECT_EQ(d.reason(), Reason::kOutside);
  }
  EXPECT_FALSE(rules.decide(std::string_view("a\0b", 3), false).visible());
  EXPECT_FALSE(FsDecision().visible());
}

TEST(FsRules, FoldsCaseOnlyWhereNamesDo) {
  const std::vector<RuleText> rules = {
      {"hide", ".env"}, {"readonly", ".git/hooks/**"}, {"hide", "*.PPK"}, {"hide", "[a-c]9"}};
  for (const char* path : {".ENV", ".GIT/Hooks/x", "k.pPk", "B9"}) {
    EXPECT_TRUE(make(rules).decide(path, false).changeable()) << path;
    EXPECT_FALSE(make(rules, FsRules::Names::kFoldCase).decide(path, false).changeable()) << path;
  }
}

TEST(FsRules, RefusesWhatCouldNeverMatch) {
  const char* patterns[] = {"/", "a//b", "../x", "a/./b", "[abc", "x\\", "!x", "[[:nope:]]", ""};
  for (const char* pattern : patterns) {
    const Json array = {{{"id", "x"}, {"action", "hide"}, {"pattern", pattern}}};
    EXPECT_FALSE(FsRules::parse(array).ok()) << pattern;
  }
}

TEST(FsRules, RefusesUnknownKeysAndActions) {
  const Json good = {{"id", "x"}, {"action", "hide"}, {"pattern", "p"}};
  EXPECT_TRUE(FsRules::parse(Json::array({good})).ok());
  for (const auto& [key, value] : std::vector<std::pair<std::string, Json>>{
           {"extra", 1}, {"action", "allow"}, {"id", ""}, {"pattern", 3}}) {
    Json bad = good;
    bad[key] = value;
    EXPECT_FALSE(FsRules::parse(Json::array({bad})).ok()) << key;
  }
  EXPECT_FALSE(FsRules::parse(Json::object()).ok());
  EXPECT_FALSE(FsRules::parse(Json::array({"x"})).ok());
}

TEST(FsRules, KnowsWhereAPlaceMatters) {
  const FsRules rules =
      make({{"hide", ".env"}, {"readonly", ".git/hooks/**"}, {"hide", "conf/secret"}});
  EXPECT_TRUE(rules.place_matters_below(".git"));
  EXPECT_TRUE(rules.place_matters_below(".git/hooks"));
  EXPECT_TRUE(rules.place_matters_below("conf"));
  EXPECT_TRUE(rules.place_matters_below(""));
  EXPECT_FALSE(rules.place_matters_below("src"));
  EXPECT_FALSE(rules.place_matters_below(".git/objects"));
  EXPECT_TRUE(make({{"hide", "a/**/b"}}).place_matters_below("a/x/y/z"));
  EXPECT_TRUE(make({{"readonly", "vendor/"}}).place_matters_below("x/vendor/y"));
}

TEST(NameGlob, LongPatternsStayFast) {
  const std::string name(255, 'a');
  std::string pattern;
  for (int i = 0; i < 60; ++i) pattern += "a*";
  EXPECT_FALSE(glob_matches(pattern + "b", name, false));
  EXPECT_TRUE(glob_matches(pattern, name, false));
}

}  // namespace
}  // namespace cofferdam::policy
