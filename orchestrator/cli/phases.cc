#include "orchestrator/cli/phases.h"

#include <algorithm>

#include "orchestrator/cli/surroundings.h"

namespace cofferdam::orchestrator::cli {
namespace {

Result<Plan> plan_of(const Plan& whole, const PhasePlan& phase) {
  Plan plan = whole;
  TRY_ASSIGN(plan.operation_id, make_sandbox_id());
  plan.argv = phase.argv;
  plan.env = phase.env;
  plan.files = phase.files;
  plan.egress_policy = phase.egress_policy;
  for (Json* policy : {&plan.fs_policy, &plan.egress_policy}) {
    (*policy)["operation"] = plan.operation_id;
  }
  auto& limit = plan.limits.timeout;
  if (phase.timeout && (!limit || *phase.timeout < *limit)) limit = phase.timeout;
  plan.interactive = false;
  plan.terminal = false;
  plan.keep = false;
  return plan;
}

Status begin_next(OwnedSandbox* sandbox, const Plan& plan) {
  TRY(sandbox->begin_again());
  if (!plan.ids.range_base) return {};
  sandbox->record.resources["id_range"] = *plan.ids.range_base;
  return sandbox->save();
}

bool failed(const RunOutcome& outcome) {
  return outcome.exit_status() != 0 || !outcome.message.empty();
}

// Nobody wanted the run to go on, or it cannot.
bool is_end(const RunOutcome& outcome) {
  return outcome.ending == Ending::kInterrupted || outcome.ending == Ending::kBroken;
}

}  // namespace

RunOutcome run_with_phases(OwnedSandbox* sandbox, const PreparedRun& run,
                           const std::function<void()>& running) {
  for (const PhasePlan& phase : run.plan.phases) {
    const auto plan = plan_of(run.plan, phase);
    if (!plan.ok()) return {Ending::kBroken, 0, plan.error().message()};
    Operation operation{"phase_started",
                        "phase_ended",
                        {{"phase", phase.name}, {"parent", run.plan.operation_id}},
                        {}};
    for (const Json& rule : phase.egress_policy.at("rules")) {
      operation.further.emplace_back("rule_added", Json{{"rule_id", rule.at("id")},
                                                        {"text", rule.at("rule")},
                                                        {"source", rule.at("source")}});
    }
    RunOutcome outcome = run_in_sandbox(sandbox, *plan, operation);
    const std::string what = "phase " + phase.name + " failed with status " +
                             std::to_string(outcome.exit_status()) +
                             (outcome.message.empty() ? "" : ": " + outcome.message);
    if (is_end(outcome) || (failed(outcome) && phase.stop_on_failure)) {
      outcome.message = what + "; the command was not started";
      return outcome;
    }
    if (failed(outcome)) note(what + "; the manifest goes on");
    if (Status next = begin_next(sandbox, run.plan); !next.ok()) {
      return {Ending::kBroken, 0, next.error().message()};
    }
  }
  return run_in_sandbox(sandbox, run.plan, run_operation(run), running);
}

}  // namespace cofferdam::orchestrator::cli
