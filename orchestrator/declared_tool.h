// Whether a command may be run as a tool of the manifest (`exec --tool NAME`), and what is recorded
// of it. Pure.
#pragma once

#include <string>

#include "common/base/json_text.h"
#include "common/policy/reason.h"

namespace cofferdam::orchestrator {

struct ToolDecision {
  policy::Verdict verdict = policy::Verdict::kDeny;
  policy::Reason reason = policy::Reason::kToolNotDeclared;
  std::string message;  // of a refusal, with the remedy
  // Trace keys of the operation: tool.name, tool.server, tool.version, tool.digest (of what the
  // manifest declares), tool.approval, approval.id with who.
  Json fields = Json::object();

  bool allowed() const { return verdict == policy::Verdict::kAllow; }
};

// What somebody said yes to; an empty id: nobody was asked, or said no.
struct ToolApproval {
  std::string id;
  std::string who;
};

// `manifest`: the sandbox's manifest.json.
ToolDecision decide_tool(const Json& manifest, const std::string& tool,
                         const ToolApproval& approval);

// The approval that the manifest demands of it: auto, ask, deny; empty: it declares no such tool.
std::string approval_of_tool(const Json& manifest, const std::string& tool);

// The fields of the event `tool_refused`.
Json refusal_fields(const ToolDecision& decision);

}  // namespace cofferdam::orchestrator
