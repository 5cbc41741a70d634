#include "orchestrator/cli/phases.h"

#include <algorithm>

#include "common/os/files.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/expiry.h"
#include "orchestrator/modes.h"

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

// The sandbox's own rights again, before anything but a phase may use them.
Status end_phases(const SandboxRecord& record, const Plan& plan) {
  TRY(os::write_file_atomic(record.egress_policy(), canonical_json(plan.egress_policy) + "\n"));
  std::error_code code;
  std::filesystem::remove(record.phase_mark(), code);
  return code ? Error(record.phase_mark().string() + ": " + code.message()) : Status();
}

// Each life may last as long as the whole, but none past the manifest's end.
Status limit_by_expiry(const SandboxRecord& record, Plan* plan) {
  TRY_ASSIGN(const auto left, left_of_manifest(record));
  auto& limit = plan->limits.timeout;
  if (left && (!limit || *left < *limit)) limit = left;
  return {};
}

RunOutcome broken(const Error& error) {
  return {Ending::kBroken, 0, error.message()};
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
  const SandboxRecord& record = sandbox->record;
  for (const PhasePlan& phase : run.plan.phases) {
    auto plan = plan_of(run.plan, phase);
    if (!plan.ok()) return broken(plan.error());
    if (Status limited = limit_by_expiry(record, &*plan); !limited.ok()) {
      return broken(limited.error());
    }
    if (Status marked = os::write_file_atomic(record.phase_mark(), phase.name + "\n");
        !marked.ok()) {
      return broken(marked.error());
    }
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
    if (Status ended = end_phases(record, run.plan); !ended.ok()) return broken(ended.error());
    const std::string what = "phase " + phase.name + " failed with status " +
                             std::to_string(outcome.exit_status()) +
                             (outcome.message.empty() ? "" : ": " + outcome.message);
    if (is_end(outcome) || (failed(outcome) && phase.stop_on_failure)) {
      outcome.message = what + "; the command was not started";
      return outcome;
    }
    if (failed(outcome)) note(what + "; the manifest goes on");
    if (Status next = begin_next(sandbox, run.plan); !next.ok()) return broken(next.error());
  }
  if (run.plan.phases.empty()) {
    return run_in_sandbox(sandbox, run.plan, run_operation(run), running);
  }
  Plan plan = run.plan;
  if (Status limited = limit_by_expiry(record, &plan); !limited.ok()) {
    return broken(limited.error());
  }
  // What was switched while one phase had ended and the next had not begun.
  if (Status last = apply_last_mode(record, &plan); !last.ok()) return broken(last.error());
  return run_in_sandbox(sandbox, plan, run_operation(run), running);
}

}  // namespace cofferdam::orchestrator::cli
