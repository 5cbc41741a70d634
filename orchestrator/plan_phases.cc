// What each phase of a manifest gets.
#include <algorithm>

#include "orchestrator/make_plan.h"
#include "orchestrator/manifest/quantity.h"

namespace cofferdam::orchestrator {
namespace {

// The request as if the phase's network were the manifest's. A phase that says what it reaches
// reaches that, also in mode open.
Result<PlanRequest> request_of(const PlanRequest& request, const PhaseRule& phase) {
  PlanRequest own = request;
  own.manifest.phases.clear();
  if (!phase.rules) return own;
  own.manifest.rules = *phase.rules;
  if (own.manifest.mode == "open") own.manifest.mode = "workspace";
  own.presets.clear();
  for (const std::string& name : phase.presets) {
    const auto found =
        std::find_if(request.phase_presets.begin(), request.phase_presets.end(),
                     [&](const PresetResult& preset) { return preset.name == name; });
    if (found == request.phase_presets.end()) return Error("preset " + name + " was not asked for");
    own.presets.push_back(*found);
  }
  return own;
}

std::string network_text(const Json& policy) {
  if (policy.at("mode") != "enforce") return policy.at("mode").get<std::string>();
  std::string text;
  for (const Json& rule : policy.at("rules")) {
    text += (text.empty() ? "" : ", ") + rule.at("rule").get<std::string>();
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace

Status plan_phases(const PlanRequest& request, const HostFacts& facts, Plan* plan) {
  for (const PhaseRule& phase : request.manifest.phases) {
    TRY_ASSIGN(const PlanRequest own, request_of(request, phase).context("phase " + phase.name));
    PhasePlan out;
    out.name = phase.name;
    out.argv = phase.command;
    out.timeout = phase.timeout;
    out.stop_on_failure = phase.stop_on_failure;
    TRY_ASSIGN(out.egress_policy, make_egress_policy(own, *plan).context("phase " + phase.name));
    // The digest is that of the whole manifest, whose part the phase is.
    out.egress_policy["manifest"] = plan->manifest_digest;
    TRY_ASSIGN(out.env, make_env(own, facts).context("phase " + phase.name));
    for (const auto& [name, value] : phase.env) out.env[name] = value;
    for (const PresetResult& preset : own.presets) {
      out.files.insert(preset.files.begin(), preset.files.end());
    }
    std::string command;
    for (const std::string& word : phase.command) command += (command.empty() ? "" : " ") + word;
    plan->lines.push_back(
        {"phase", phase.name + ": " + command + "; reaches " + network_text(out.egress_policy) +
                      (phase.timeout ? "; at most " + duration_text(*phase.timeout) : "") +
                      (phase.stop_on_failure ? "" : "; a failure only warns")});
    plan->phases.push_back(std::move(out));
  }
  return {};
}

}  // namespace cofferdam::orchestrator
