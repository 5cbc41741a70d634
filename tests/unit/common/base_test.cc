#include <gtest/gtest.h>

#include "common/base/escape.h"
#include "common/base/json_text.h"
#include "common/base/result.h"
#include "common/base/sha256.h"
#include "common/base/text_time.h"
#include "common/policy/reason.h"

namespace cofferdam {
namespace {

TEST(Escape, ControlsBidiAndInvalidBytesNeverReachTheTerminal) {
  const struct {
    std::string_view in;
    std::string_view out;
  } cases[] = {
      {"plain", "plain"},
      {"\x1b[31mred", "\\x1b[31mred"},
      {"a\nb\tc", "a\\nb\\tc"},
      {"\x7f", "\\x7f"},
      {"\xc2\x9b", "\\u{009b}"},  // C1 CSI
      {"\xe2\x80\xae"
       "evil",
       "\\u{202e}evil"},              // right-to-left override
      {"\xe2\x81\xa6", "\\u{2066}"},  // isolate
      {"\xef\xbb\xbf", "\\u{feff}"},
      {"\xff\xfe", "\\xff\\xfe"},
      {"\xc0\xaf", "\\xc0\\xaf"},           // overlong '/'
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"},  // surrogate
      {"\xe2\x82", "\\xe2\\x82"},           // cut short
      {"caf\xc3\xa9", "caf\xc3\xa9"},
      {"back\\slash", "back\\\\slash"},
  };
  for (const auto& c : cases) EXPECT_EQ(escape_for_terminal(c.in), c.out) << c.out;
}

TEST(Escape, KeepsLinesOnlyWhenAsked) {
  EXPECT_EQ(escape_for_terminal("a\n\tb\x1b", true), "a\n\tb\\x1b");
}

TEST(Escape, JsonTextReplacesInvalidBytesOnly) {
  EXPECT_EQ(to_json_text("ok\xff"
                         "x"),
            "ok\xef\xbf\xbdx");
  EXPECT_TRUE(is_valid_utf8("caf\xc3\xa9"));
  EXPECT_FALSE(is_valid_utf8("\xc3"));
}

TEST(JsonText, PrintedJsonIsPlainAsciiWithoutControls) {
  const std::string text = printable_json(Json{{"a\x7f", "b\x7f\x7f\x1b\u202e"}}, -1);
  EXPECT_EQ(text, "{\"a\\u007f\":\"b\\u007f\\u007f\\u001b\\u202e\"}");
  EXPECT_EQ(*parse_json(text), (Json{{"a\x7f", "b\x7f\x7f\x1b\u202e"}}));
}

TEST(JsonText, EqualValuesGiveEqualBytes) {
  const auto a = parse_json(R"({"b":1,"a":[true,null]})");
  const auto b = parse_json("{ \"a\" : [true , null], \"b\":1 }");
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(canonical_json(*a), canonical_json(*b));
}

TEST(JsonText, RefusesGarbageAndDepth) {
  EXPECT_FALSE(parse_json("{").ok());
  EXPECT_FALSE(parse_json("1 2").ok());
  EXPECT_FALSE(parse_json(std::string(100, '[') + std::string(100, ']')).ok());
  EXPECT_TRUE(parse_json(std::string(60, '[') + std::string(60, ']')).ok());
}

TEST(Sha256, MatchesTheStandardsVectors) {
  EXPECT_EQ(to_hex(sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 pieces;
  pieces.update("a");
  pieces.update("bc");
  EXPECT_EQ(pieces.finish(), sha256("abc"));
  EXPECT_EQ(digest_from_hex(to_hex(sha256(""))), sha256(""));
  EXPECT_FALSE(digest_from_hex("zz").has_value());
}

TEST(TextTime, IsRfc3339InUtcWithMicroseconds) {
  EXPECT_EQ(to_rfc3339(WallTime(std::chrono::microseconds(1'000'006))),
            "1970-01-01T00:00:01.000006Z");
}

TEST(TextTime, WhatCannotBeHeldIsRefusedAndNeverAnotherTime) {
  for (const char* text : {"2262-01-01T00:00:00Z", "2600-01-01T00:00:00Z", "9999-12-31T23:59:59Z",
                           "1677-12-31T23:59:59Z", "0000-01-01T00:00:00Z"}) {
    EXPECT_FALSE(parse_rfc3339(text)) << text;
  }
  for (const char* text : {"1678-01-01T00:00:00.000000Z", "2261-12-31T23:59:59.999999Z"}) {
    const auto time = parse_rfc3339(text);
    ASSERT_TRUE(time) << text;
    if (*time > WallTime()) {
      EXPECT_EQ(to_rfc3339(*time), text);
    }
  }
}

TEST(Reason, EveryTextComesBack) {
  for (int i = 0; i <= static_cast<int>(policy::Reason::kUpstreamProxyRefused); ++i) {
    const auto reason = static_cast<policy::Reason>(i);
    EXPECT_EQ(policy::reason_from_text(policy::to_text(reason)), reason);
  }
  EXPECT_EQ(policy::reason_from_text("no_such_reason"), std::nullopt);
}

Result<int> half(int n) {
  if (n % 2 != 0) return Error("odd");
  return n / 2;
}
Result<int> quarter(int n) {
  TRY_ASSIGN(const int first, half(n).context("first"));
  return half(first).context("second");
}

TEST(Result, CarriesContextOnTheWayUp) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(3).error().message(), "first: odd");
  EXPECT_EQ(quarter(6).error().message(), "second: odd");
}

}  // namespace
}  // namespace cofferdam
