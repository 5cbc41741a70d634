#include "orchestrator/declared_tool.h"

#include <gtest/gtest.h>

namespace cofferdam::orchestrator {
namespace {

const Json kManifest = {
    {"tools",
     {{{"name", "issues"}, {"server", "tracker"}, {"version", "2"}, {"approval", "auto"}},
      {{"name", "deploy"}, {"approval", "ask"}},
      {{"name", "wipe"}, {"approval", "deny"}}}}};

TEST(DeclaredTool, OnlyWhatIsDeclaredAndApprovedIsCalled) {
  const struct {
    const char* tool;
    ToolApproval approval;
    policy::Reason reason;
  } cases[] = {
      {"issues", {}, policy::Reason::kAllowed},
      {"issue", {}, policy::Reason::kToolNotDeclared},
      {"", {}, policy::Reason::kToolNotDeclared},
      {"deploy", {}, policy::Reason::kApprovalRequired},
      {"deploy", {"1", "anna"}, policy::Reason::kAllowed},
      {"wipe", {"1", "anna"}, policy::Reason::kToolDenied},
  };
  for (const auto& c : cases) {
    const ToolDecision decision = decide_tool(kManifest, c.tool, c.approval);
    EXPECT_EQ(decision.reason, c.reason) << c.tool;
    EXPECT_EQ(decision.allowed(), c.reason == policy::Reason::kAllowed) << c.tool;
    EXPECT_EQ(decision.message.empty(), decision.allowed()) << c.tool;
  }
}

TEST(DeclaredTool, WhatIsRecordedNamesTheDeclarationItself) {
  const Json fields = decide_tool(kManifest, "issues", {}).fields;
  EXPECT_EQ(fields.at("tool.name"), "issues");
  EXPECT_EQ(fields.at("tool.server"), "tracker");
  EXPECT_EQ(fields.at("tool.version"), "2");
  Json other = kManifest;
  other["tools"][0]["version"] = "3";
  EXPECT_NE(decide_tool(other, "issues", {}).fields.at("tool.digest"), fields.at("tool.digest"));
  EXPECT_EQ(decide_tool(kManifest, "deploy", {"1", "anna"}).fields.at("approval.id"), "1");
}

TEST(DeclaredTool, AManifestThatIsNoneDeclaresNothing) {
  for (const Json& manifest :
       {Json(), Json::object(), Json::array(), Json{{"tools", 1}}, Json{{"tools", {1, nullptr}}}}) {
    EXPECT_FALSE(decide_tool(manifest, "issues", {}).allowed());
  }
}

}  // namespace
}  // namespace cofferdam::orchestrator
