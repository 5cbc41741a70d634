#include <chrono>
#include <optional>

#include "common/base/text_time.h"
#include "common/os/files.h"
#include "orchestrator/cli/exec.h"
#include "orchestrator/cli/run.h"
#include "orchestrator/cli/supervised.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/expiry.h"
#include "orchestrator/host_facts.h"
#include "orchestrator/modes.h"
#include "orchestrator/stored_plan.h"

namespace cofferdam::orchestrator::cli {
namespace {

// The rights are those of the plan that was carried out first; only what is executed is new.
Result<Plan> plan_again(const OwnedSandbox& sandbox, const SandboxStore& store,
                        const ExecPlan& exec) {
  TRY_ASSIGN(RestoredPlan restored, load_plan(sandbox.record));
  Plan plan = std::move(restored.plan);
  FactsQuery query;
  query.docker = plan.engine == "docker";
  if (plan.docker) query.image = plan.docker->image_id;
  TRY_ASSIGN(const HostFacts facts, gather_host_facts(query));
  if (facts.uid != plan.ids.caller_uid) {
    return Error("it belongs to uid " + std::to_string(plan.ids.caller_uid));
  }
  if (facts.uid == 0) {
    TRY_ASSIGN(const std::vector<std::uint32_t> live, live_ranges(store));
    TRY_ASSIGN(const std::uint32_t base, choose_id_range(facts, plan.sandbox_id, live));
    plan.ids.take_range(base);
  }
  TRY(apply_last_mode(sandbox.record, &plan));
  TRY_ASSIGN(plan.operation_id, make_sandbox_id());
  for (Json* policy : {&plan.fs_policy, &plan.egress_policy}) {
    (*policy)["operation"] = plan.operation_id;
  }
  plan.argv = exec.request.argv;
  plan.directory = exec.request.directory.value_or(plan.directory);
  plan.interactive = exec.interactive;
  plan.terminal = exec.request.terminal;
  if (plan.terminal && !plan.env.contains("TERM")) plan.env["TERM"] = "xterm-256color";
  for (const auto& [name, value] : exec.carried) plan.own_env[name] = value;
  for (const std::string& name : restored.missing_variables) {
    if (exec.carried.contains(name)) continue;
    note(name + " was given to the first run alone and is not kept; --env " + name +
         " gives yours again");
  }
  TRY_ASSIGN(const auto left, left_of_manifest(sandbox.record));
  auto& limit = plan.limits.timeout;
  if (left && (!limit || *left < *limit)) limit = left;
  const auto& asked = exec.request.timeout;
  if (asked && (!limit || *asked < *limit)) limit = asked;
  return plan;
}

}  // namespace

Result<RunOutcome> exec_in_ended(OwnedSandbox* sandbox, const SandboxStore& store,
                                 const ExecPlan& exec) {
  TRY_ASSIGN(const Plan plan, plan_again(*sandbox, store, exec));
  TRY(sandbox->begin_again());
  if (plan.ids.range_base) {
    sandbox->record.resources["id_range"] = *plan.ids.range_base;
    TRY(sandbox->save());
  }
  Operation operation{"exec_started", "exec_ended", {{"resumed", true}}, {}};
  operation.fields["timeout_ms"] =
      plan.limits.timeout ? Json(plan.limits.timeout->count()) : Json();
  operation.fields["tool.name"] = exec.request.tool.empty() ? Json() : Json(exec.request.tool);
  return run_in_sandbox(sandbox, plan, operation);
}

}  // namespace cofferdam::orchestrator::cli
