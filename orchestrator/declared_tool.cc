#include "orchestrator/declared_tool.h"

#include "common/base/sha256.h"

namespace cofferdam::orchestrator {
namespace {

// Nothing where the manifest declares no such tool.
Json find_tool(const Json& manifest, const std::string& name) {
  const auto tools = manifest.is_object() ? manifest.find("tools") : manifest.end();
  if (!manifest.is_object() || tools == manifest.end() || !tools->is_array()) return Json();
  for (const Json& tool : *tools) {
    if (tool.is_object() && tool.value("name", Json()) == name) return tool;
  }
  return Json();
}

std::string declared_names(const Json& manifest) {
  std::string names;
  for (const Json& tool : manifest.value("tools", Json::array())) {
    if (!tool.is_object() || !tool.contains("name") || !tool["name"].is_string()) continue;
    names += (names.empty() ? "" : ", ") + tool["name"].get<std::string>();
  }
  return names;
}

}  // namespace

std::string approval_of_tool(const Json& manifest, const std::string& tool) {
  const Json found = find_tool(manifest, tool);
  return found.is_null() ? "" : found.value("approval", "auto");
}

ToolDecision decide_tool(const Json& manifest, const std::string& tool,
                         const ToolApproval& approval) {
  ToolDecision decision;
  decision.fields = {{"tool.name", tool}};
  const Json found = find_tool(manifest, tool);
  if (found.is_null()) {
    const std::string names = manifest.is_object() ? declared_names(manifest) : "";
    decision.message = "tool " + tool + " is not declared by the sandbox's manifest (tools: " +
                       (names.empty() ? "none" : names) + ")";
    return decision;
  }
  for (const char* key : {"server", "version"}) {
    if (found.contains(key)) decision.fields[std::string("tool.") + key] = found.at(key);
  }
  const std::string asked = found.value("approval", "auto");
  decision.fields["tool.approval"] = asked;
  decision.fields["tool.digest"] = "sha256:" + to_hex(sha256(canonical_json(found)));
  if (asked == "deny") {
    decision.reason = policy::Reason::kToolDenied;
    decision.message = "tool " + tool + " is declared with approval: deny";
    return decision;
  }
  if (asked != "auto" && approval.id.empty()) {
    decision.reason = policy::Reason::kApprovalRequired;
    decision.message = "tool " + tool +
                       " is declared with approval: ask. Remedy: call it from a terminal, where "
                       "somebody can answer";
    return decision;
  }
  if (!approval.id.empty()) {
    decision.fields["approval.id"] = approval.id;
    decision.fields["who"] = approval.who;
  }
  decision.verdict = policy::Verdict::kAllow;
  decision.reason = policy::Reason::kAllowed;
  return decision;
}

Json refusal_fields(const ToolDecision& decision) {
  Json fields = decision.fields;
  fields["verdict"] = policy::to_text(decision.verdict);
  fields["reason"] = policy::to_text(decision.reason);
  fields["rule"] = "tools";
  fields["retryable"] = policy::is_retryable(decision.reason);
  return fields;
}

}  // namespace cofferdam::orchestrator
