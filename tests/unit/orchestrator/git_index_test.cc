#include "orchestrator/git_index.h"

#include <gtest/gtest.h>

namespace cofferdam::orchestrator {
namespace {

std::string number(std::uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>((value >> shift) & 0xFFU);
  return out;
}

std::string entry(const std::string& tail, bool padded) {
  std::string out = std::string(60, '\x11') + std::string(2, '\0') + tail + '\0';
  while (padded && out.size() % 8 != 0) out += '\0';
  return out;
}

TEST(GitIndex, ListsThePathsOfVersionsTwoAndFour) {
  const std::vector<std::string> expected = {".env", "a/bb", "a/bcc"};
  const std::string two = "DIRC" + number(2) + number(3) + entry(".env", true) +
                          entry("a/bb", true) + entry("a/bcc", true) + std::string(20, 'h');
  ASSERT_TRUE(parse_git_index(two).ok());
  EXPECT_EQ(*parse_git_index(two), expected);
  using std::string_literals::operator""s;
  const std::string four = "DIRC" + number(4) + number(3) + entry("\0.env"s, false) +
                           entry("\4a/bb"s, false) + entry("\1cc"s, false) + std::string(20, 'h');
  ASSERT_TRUE(parse_git_index(four).ok());
  EXPECT_EQ(*parse_git_index(four), expected);
}

TEST(GitIndex, EveryCutIsAnErrorAndNoCrash) {
  using std::string_literals::operator""s;
  const std::string four =
      "DIRC" + number(4) + number(2) + entry("\0ab"s, false) + entry("\1c"s, false);
  for (std::size_t length = 0; length < four.size(); ++length) {
    EXPECT_FALSE(parse_git_index(std::string_view(four).substr(0, length)).ok()) << length;
  }
  EXPECT_FALSE(parse_git_index("DIRC" + number(4) + number(1) + entry("\5x"s, false)).ok());
  EXPECT_FALSE(parse_git_index("DIRC" + number(9) + number(0)).ok());
  EXPECT_FALSE(parse_git_index("DIRC" + number(2) + number(0xFFFFFFFF) + entry("a", true)).ok());
}

}  // namespace
}  // namespace cofferdam::orchestrator
