#include <chrono>
#include <optional>

#include "common/base/text_time.h"
#include "common/os/files.h"
#include "orchestrator/cli/exec.h"
#include "orchestrator/cli/run.h"
#include "orchestrator/cli/supervised.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/declared_tool.h"
#include "orchestrator/expiry.h"
#include "orchestrator/host_facts.h"
#include "orchestrator/manifest/sources.h"
#include "orchestrator/manifest/stored_manifest.h"
#include "orchestrator/modes.h"
#include "orchestrator/stored_plan.h"

namespace cofferdam::orchestrator::cli {
namespace {

// The rights are those of the plan that was carried out first; only what is executed is new.
Result<Plan> plan_again(const OwnedSandbox& sandbox, const SandboxStore& store,
                        const ExecPlan& exec, std::string* parent) {
  TRY_ASSIGN(RestoredPlan restored, load_plan(sandbox.record));
  Plan plan = std::move(restored.plan);
  *parent = plan.operation_id;
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

// The organisation's file of today bounds a sandbox of yesterday too.
Status check_organisation(const SandboxStore& store, const SandboxRecord& record) {
  TRY_ASSIGN(const ManifestPlaces places, manifest_places(state_directory(store)));
  TRY_ASSIGN(const auto limit, organisation_limit(places));
  if (!limit) return {};
  TRY_ASSIGN(const std::string text, os::read_file(record.directory / "manifest.json"));
  TRY_ASSIGN(const Json stored, parse_json(text));
  TRY_ASSIGN(Manifest manifest, parse_stored_manifest(stored));
  TRY_ASSIGN(manifest.mode, mode_of(record));
  TRY_ASSIGN(const auto beyond, beyond_limit(manifest, *limit));
  if (beyond.empty()) return {};
  std::string what;
  constexpr std::size_t kTold = 5;
  for (std::size_t i = 0; i < beyond.size() && i < kTold; ++i) what += "\n  " + beyond[i];
  return Error("it has rights that " + limit->source + " does not permit any more:" + what +
               "\nRemedy: merge or export what it made, and run a new one");
}

// What is recorded of the tool that the command is; it was checked that it may be called.
Result<Json> tool_fields(const SandboxRecord& record, const ExecRequest& request) {
  if (request.tool.empty()) return Json::object();
  TRY_ASSIGN(const std::string text, os::read_file(record.directory / "manifest.json"));
  TRY_ASSIGN(const Json manifest, parse_json(text));
  return decide_tool(manifest, request.tool, request.approval).fields;
}

}  // namespace

Result<RunOutcome> exec_in_ended(OwnedSandbox* sandbox, const SandboxStore& store,
                                 const ExecPlan& exec) {
  TRY(check_organisation(store, sandbox->record));
  TRY_ASSIGN(const Json tool, tool_fields(sandbox->record, exec.request));
  std::string parent;  // the operation of its run
  // No switch comes between what is read of the rights and the start with them.
  TRY_ASSIGN(os::FileLock held, lock_rights(sandbox->record));
  std::optional<os::FileLock> lock(std::move(held));
  TRY_ASSIGN(const Plan plan, plan_again(*sandbox, store, exec, &parent));
  TRY(sandbox->begin_again());
  lock.reset();
  if (plan.ids.range_base) {
    sandbox->record.resources["id_range"] = *plan.ids.range_base;
    TRY(sandbox->save());
  }
  Operation operation{"exec_started", "exec_ended", {{"resumed", true}, {"parent", parent}}, {}};
  operation.fields["timeout_ms"] =
      plan.limits.timeout ? Json(plan.limits.timeout->count()) : Json();
  operation.fields["tool.name"] = Json();
  operation.fields.update(tool);
  const std::string& kept = exec.request.checkpoint;
  operation.fields["checkpoint.id"] = kept.empty() ? Json() : Json(kept);
  return run_in_sandbox(sandbox, plan, operation);
}

}  // namespace cofferdam::orchestrator::cli
