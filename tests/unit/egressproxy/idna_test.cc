#include "common/policy/idna.h"

#include <gtest/gtest.h>

#include <string>

#include "common/policy/egress_rule.h"

namespace cofferdam::policy {
namespace {

TEST(Idna, ConvertsULabelsOnceByTheStrictProcedure) {
  struct Case {
    const char* text;
    const char* a_labels;
  };
  const Case cases[] = {
      {"b\xc3\xbc"
       "cher.example",
       "xn--bcher-kva.example"},
      {"B\xc3\xbc"
       "cher.EXAMPLE",
       "xn--bcher-kva.EXAMPLE"},
      {"fa\xc3\x9f.example", "xn--fa-hia.example"},
      {"\xe4\xbe\x8b\xe3\x81\x88.\xe3\x83\x86\xe3\x82\xb9\xe3\x83\x88", "xn--r8jz45g.xn--zckzah"},
      {"*.b\xc3\xbc"
       "cher.example",
       "*.xn--bcher-kva.example"},
      {"example.com", "example.com"},
      {"xn--a.example", "xn--a.example"},
      {"my_bucket.example", "my_bucket.example"}};
  for (const Case& c : cases) {
    const auto made = to_a_labels(c.text);
    ASSERT_TRUE(made.ok()) << c.text << ": " << made.error().message();
    EXPECT_EQ(*made, c.a_labels);
  }
}

// Case 5: nothing is mapped, so no other spelling of digits, letters or dots becomes one of ours.
TEST(Idna, MapsNothing) {
  const std::string refused[] = {
      "\xe2\x91\xa0\xe2\x91\xa1\xe2\x91\xa6.\xe2\x93\xaa.\xe2\x93\xaa.\xe2\x91\xa0",  // circled
                                                                                      // digits
      "127\xe3\x80\x82"
      "0\xe3\x80\x82"
      "0\xe3\x80\x82"
      "1",                       // ideographic full stops
      "\xef\xbd\x85xample.com",  // full-width e
      "example\xef\xbc\x8e"
      "com",                             // full-width full stop
      "\xc3\x84pfel.example",            // upper case
      "soft\xc2\xadhyphen.example",      // ignorable
      "zero\xe2\x80\x8bwidth.example",   // zero width space
      "zero\xe2\x80\x8djoiner.example",  // joiner without its context
      "\xe2\x80\xae"
      "evil.example",              // direction override
      "\xf0\x9f\x98\x80.example",  // emoji: write its xn-- form
      "e\xcc\x81.example",         // not NFC
      "\xcc\x81"
      "a.example",             // begins with a combining mark
      "ab--\xc3\xbc.example",  // hyphens in the third and fourth place
      "\xd7\x90"
      "a\xd7\x90.example",  // mixed direction
      "bad\xff.example", "bad\xc3.example",
      "\xed\xa0\x80.example",  // not UTF-8
      std::string("a\0\xc3\xbc.example", 13)};
  for (const std::string& text : refused) {
    const auto made = to_a_labels(text);
    EXPECT_FALSE(made.ok()) << text << " became " << (made.ok() ? *made : "");
    EXPECT_FALSE(parse_rule(text).ok()) << text;
  }
}

TEST(Idna, RefusesWhatDoesNotFitALabel) {
  std::string label;
  for (int i = 0; i < 60; ++i) label += "\xe4\xbe\x8b";
  EXPECT_FALSE(to_a_labels(label).ok());
  EXPECT_FALSE(to_a_labels(std::string(5000, '\xc3')).ok());
}

// Case 7: on the wire the A-label is opaque bytes; the rule and the client meet there.
TEST(Idna, ARuleMatchesTheALabelAndNoLookAlike) {
  const auto rule = parse_rule(
      "b\xc3\xbc"
      "cher.example");
  ASSERT_TRUE(rule.ok());
  EXPECT_EQ(to_text(*rule), "tls://xn--bcher-kva.example:443");
  EXPECT_TRUE(rule->pattern.matches(*Host::parse("XN--BCHER-KVA.example")));
  EXPECT_FALSE(rule->pattern.matches(*Host::parse("bucher.example")));
  EXPECT_FALSE(parse_rule("apple.com")->pattern.matches(*Host::parse("xn--pple-43d.com")));
  EXPECT_FALSE(Host::parse("b\xc3\xbc"
                           "cher.example")
                   .ok());
}

// Case 8: an A-label that decodes to nothing is a name like others; nobody decodes it.
TEST(Idna, AnInvalidALabelIsOpaque) {
  const auto rule = parse_rule("xn--a.example");
  ASSERT_TRUE(rule.ok());
  EXPECT_TRUE(rule->pattern.matches(*Host::parse("xn--a.example")));
  EXPECT_FALSE(rule->pattern.matches(*Host::parse("xn--b.example")));
  EXPECT_TRUE(Host::parse("xn--").ok());
}

}  // namespace
}  // namespace cofferdam::policy
