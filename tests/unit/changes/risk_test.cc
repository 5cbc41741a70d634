#include "orchestrator/changes/risk.h"

#include <gtest/gtest.h>

namespace cofferdam::orchestrator::changes {
namespace {

Change added(std::string path, layer::Kind kind = layer::Kind::kFile, std::uint32_t mode = 0644) {
  Change change;
  change.path = std::move(path);
  change.kind = ChangeKind::kAdded;
  change.theirs.kind = kind;
  change.theirs.mode = mode;
  return change;
}

TEST(RiskTable, WhatRunsByItselfNeedsAnAllowance) {
  const auto table = RiskTable::built_in();
  ASSERT_TRUE(table.ok()) << table.error().message();
  for (const char* path :
       {".envrc", "sub/.ENVRC", ".vscode/tasks.json", "a/.VSCode/Settings.json",
        ".husky/pre-commit", ".githooks/x/y", ".github/workflows/ci.yml", ".gitlab-ci.yml",
        "site/sitecustomize.py", "x.pth", ".gitattributes", ".devcontainer/devcontainer.json",
        ".mcp.json", ".husky", ".envrc.", ".vscode /tasks.json", ".git\u200chub/workflows/x.yml",
        ".gitattributes::$DATA"}) {
    EXPECT_EQ(table->assess(added(path), "").level, RiskLevel::kNeedsAllowance) << path;
    EXPECT_FALSE(table->assess(added(path), "").reason.empty()) << path;
  }
}

TEST(RiskTable, WhatAToolRunsIsListed) {
  const auto table = RiskTable::built_in();
  for (const char* path : {"package.json", "a/Makefile", "x.mk", "conftest.py", "jest.config.ts",
                           "package-lock.json", ".npmrc", ".github/CODEOWNERS", "a/AGENTS.md",
                           "Cargo.toml", "requirements-dev.txt", "x/main.tf", "bun.lockb"}) {
    EXPECT_EQ(table->assess(added(path), "").level, RiskLevel::kListed) << path;
  }
  EXPECT_EQ(table->assess(added("run.sh", layer::Kind::kFile, 0755), "").rule, "executable");
}

TEST(RiskTable, OrdinaryFilesAndDeletionsAreNot) {
  const auto table = RiskTable::built_in();
  for (const char* path : {"src/main.c", "README.md", "envrc", "vscode/tasks.json", "tasks.json",
                           "husky/x", "package.json.bak", "docs/tsconfig.md"}) {
    EXPECT_EQ(table->assess(added(path), "").level, RiskLevel::kNone) << path;
  }
  Change gone = added(".envrc");
  gone.kind = ChangeKind::kDeleted;
  gone.theirs = {};
  EXPECT_EQ(table->assess(gone, "").level, RiskLevel::kListed);
}

TEST(RiskTable, LinksThatLeadOutNeedAnAllowance) {
  const struct {
    const char* path;
    const char* text;
    bool escapes;
  } cases[] = {
      {"l", "/etc/passwd", true},
      {"l", "..", true},
      {"a/l", "..", false},
      {"a/l", "../..", true},
      {"a/b/l", "../../x", false},
      {"a/l", "../../x/../y", true},
      {"l", "target", false},
      {"l", "./a/b", false},
      // Whatever "a" leads to, ".." goes up from there.
      {"l", "./a/../b", true},
      {"a/l", "../d/../etc/passwd", true},
      {"l", ".git/config", true},
      {"a/l", "../.GIT/hooks", true},
      {"l", "", false},
      {"l", "a/../../b", true},
  };
  const auto table = RiskTable::built_in();
  for (const auto& c : cases) {
    EXPECT_EQ(link_escapes(c.path, c.text), c.escapes) << c.path << " -> " << c.text;
    EXPECT_EQ(table->assess(added(c.path, layer::Kind::kSymlink), c.text).level ==
                  RiskLevel::kNeedsAllowance,
              c.escapes);
    EXPECT_NE(table->assess(added(c.path, layer::Kind::kSymlink), c.text).level, RiskLevel::kNone);
  }
}

TEST(RiskTable, ATableThatSaysMoreThanIsKnownIsRefused) {
  for (const char* text :
       {"{}", R"({"version":2,"rules":[]})",
        R"({"version":1,"rules":[{"id":"a","level":"listed"}]})",
        R"({"version":1,"rules":[{"id":"a","level":"worse","reason":"b"}]})",
        R"({"version":1,"rules":[{"id":"a","level":"listed","reason":"b","glob":["x"]}]})"}) {
    EXPECT_FALSE(RiskTable::parse(text).ok()) << text;
  }
}

}  // namespace
}  // namespace cofferdam::orchestrator::changes
