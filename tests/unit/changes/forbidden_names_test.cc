#include "orchestrator/changes/forbidden_names.h"

#include <gtest/gtest.h>

#include <string>

namespace cofferdam::orchestrator::changes {
namespace {

TEST(ForbiddenNames, DotGitIsSeenUnderEveryFolding) {
  const std::string_view names[] = {
      ".git",
      ".GIT",
      ".Git",
      ".git.",
      ".git ",
      ".git. . .",
      ".git::$INDEX_ALLOCATION",
      ".GIT:stream",
      "git~1",
      "GIT~1",
      "git~1.",
      ".g\xe2\x80\x8cit",  // U+200C
      "\xef\xbb\xbf.git",  // U+FEFF
      ".gi\xe2\x80\xaet",  // U+202E
      ".git\xe2\x81\xac",  // U+206C
      ".g\xc2\xadit",      // U+00AD, ignored by a case-folding ext4
      ".\xe2\x80\x8d"
      "GI\xe2\x80\x8fT ",
      "x\\.git",
      ".git\\config",
      "a\\GIT~1\\b",
  };
  for (const auto name : names) EXPECT_TRUE(is_dot_git(name)) << name;
}

TEST(ForbiddenNames, WhatOnlyLooksLikeItIsFree) {
  const std::string_view names[] = {".gitignore", ".github", "git",         "git~2", ".git2",
                                    "a.git",      ".gitt",   "..git",       ".g it", "",
                                    " .git",      ".gi",     "\xe2\x80.git"};
  for (const auto name : names) EXPECT_FALSE(is_dot_git(name)) << name;
}

TEST(ForbiddenNames, ThePrefixEndsWithTheFirstSuchComponent) {
  EXPECT_EQ(dot_git_prefix("a/.git/hooks/.git"), "a/.git");
  EXPECT_EQ(dot_git_prefix(".GIT"), ".GIT");
  EXPECT_EQ(dot_git_prefix("vendor/lib/git~1/x"), "vendor/lib/git~1");
  EXPECT_EQ(dot_git_prefix("a/b/c"), std::nullopt);
}

}  // namespace
}  // namespace cofferdam::orchestrator::changes
