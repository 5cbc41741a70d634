#include "orchestrator/cli/supervised.h"

#include <fcntl.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <set>

#include "common/log/event_log.h"
#include "common/os/files.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/engine/operation_messages.h"
#include "orchestrator/event_reader.h"
#include "orchestrator/stored_plan.h"

namespace cofferdam::orchestrator::cli {
namespace {

using Clock = std::chrono::steady_clock;

Status record_start(log::EventLog* events, const Plan& plan, const Operation& operation) {
  Json fields = plan.trace;
  fields.update(operation.fields);
  fields["engine"] = plan.engine;
  fields["workspace"] = plan.workspace;
  fields["program"] = plan.argv.empty() ? "" : plan.argv.front();
  fields["limits"] = plan.limits.to_json();
  TRY(events->write(operation.started, fields));
  for (const auto& [event, further] : operation.further) TRY(events->write(event, further));
  return {};
}

// What the connections of this life carried, by the events from `offset` on.
Json bytes_since(const SandboxRecord& record, std::uint64_t offset) {
  std::uint64_t up = 0;
  std::uint64_t down = 0;
  const auto read = for_each_event(record.events(), offset, [&](const Json& event) {
    if (event_text(event, "of") == "egress") {
      const auto folded = parse_json(event_text(event, "fields"));
      if (!folded.ok() || !folded->is_object()) return;
      up += event_number(*folded, "bytes_up");
      down += event_number(*folded, "bytes_down");
    } else if (event_text(event, "event") == "egress") {
      up += event_number(event, "bytes_up");
      down += event_number(event, "bytes_down");
    }
  });
  if (!read.ok()) return {{"bytes_up", nullptr}, {"bytes_down", nullptr}};
  return {{"bytes_up", up}, {"bytes_down", down}};
}

// However the supervisor left it, the sandbox has ended now.
Status finish_record(OwnedSandbox* sandbox, const RunOutcome& outcome) {
  sandbox->record.exit_status = outcome.exit_status();
  sandbox->record.message = outcome.message;
  // What an engine could not remove stays recorded, for `rm`.
  for (const char* key : {"id_range", "cgroups"}) sandbox->record.resources.erase(key);
  if (sandbox->record.ended_for_good()) return sandbox->save();
  if (outcome.ending == Ending::kBroken) return sandbox->set_state(SandboxState::kFailed);
  for (const SandboxState next :
       {SandboxState::kRunning, SandboxState::kStopping, SandboxState::kTerminated}) {
    if (static_cast<int>(next) > static_cast<int>(sandbox->record.state)) {
      TRY(sandbox->set_state(next));
    }
  }
  return {};
}

}  // namespace

Result<OwnedSandbox> create_sandbox(const SandboxStore& store, const PreparedRun& run) {
  const Plan& plan = run.plan;
  SandboxRecord record;
  record.id = plan.sandbox_id;
  record.name = plan.sandbox_name;
  record.workspace = plan.workspace;
  record.engine = plan.engine;
  record.manifest = plan.manifest_digest;
  record.argv = plan.argv;
  if (plan.ids.range_base) record.resources["id_range"] = *plan.ids.range_base;
  TRY_ASSIGN(OwnedSandbox sandbox, store.create(std::move(record)));
  for (const MountPlan& mount : plan.mounts) {
    if (!mount.layer) continue;
    for (const char* part : {"upper", "work"}) {
      TRY(os::make_directories(std::filesystem::path(*mount.layer) / part));
    }
  }
  TRY(os::write_file_atomic(sandbox.record.directory / "manifest.json",
                            canonical_json(stored_manifest_json(run.manifest)) + "\n"));
  std::set<std::string> secret;
  for (const auto& [name, value] : run.secret_env) secret.insert(name);
  TRY(save_plan(sandbox.record, plan, secret));
  return sandbox;
}

Operation run_operation(const PreparedRun& run) {
  Operation operation;
  const auto add = [&](const char* event, Json fields) {
    operation.further.emplace_back(event, std::move(fields));
  };
  for (const SecretPlan& secret : run.plan.secrets) {
    add("secret_given", {{"name", secret.name},
                         {"as", secret.as_file ? "file" : "variable"},
                         {"commands", secret.commands}});
  }
  for (const ExtraMount& mount : run.manifest.mounts) {
    add("mount_added",
        {{"source", mount.source},
         {"path", mount.target},
         {"mode", mount.cow ? "cow" : "read-only"},
         {"classification", mount.classification.empty() ? Json() : Json(mount.classification)}});
  }
  for (const Json& rule : run.plan.egress_policy.at("rules")) {
    add("rule_added",
        {{"rule_id", rule.at("id")}, {"text", rule.at("rule")}, {"source", rule.at("source")}});
  }
  return operation;
}

RunOutcome run_in_sandbox(OwnedSandbox* sandbox, const Plan& plan, const Operation& operation,
                          const std::function<void()>& running) {
  RunOutcome outcome;
  auto fd = os::open_file(sandbox->record.events(), O_WRONLY | O_APPEND | O_CREAT);
  if (!fd.ok()) {
    outcome.message = fd.error().message();
  } else {
    log::EventLog events(std::move(fd).value(),
                         {plan.sandbox_id, plan.operation_id, plan.manifest_digest, "supervisor"});
    const auto begin = Clock::now();
    std::error_code code;
    const auto size = std::filesystem::file_size(sandbox->record.events(), code);
    const std::uint64_t recorded_before = code ? 0 : size;
    if (Status started = record_start(&events, plan, operation); !started.ok()) {
      outcome.message = started.error().message();
    } else if (auto supervised = supervise(plan, *sandbox, events, running); supervised.ok()) {
      outcome = std::move(supervised).value();
    } else {
      outcome.message = supervised.error().message();
    }
    const auto duration =
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count();
    Json fields = {{"ending", to_text(outcome.ending)},
                   {"status", outcome.status},
                   {"exit_status", outcome.exit_status()},
                   {"message", outcome.message},
                   {"duration_ms", duration},
                   {"output_bytes", outcome.output_bytes ? Json(*outcome.output_bytes) : Json()}};
    fields.update(bytes_since(sandbox->record, recorded_before));
    Status ended = events.write(operation.ended, fields);
    if (!ended.ok()) note("the events: " + ended.error().message());
  }  // suppressed counts are written before anybody reads the file
  if (Status finished = finish_record(sandbox, outcome); !finished.ok()) {
    note(finished.error().message());
  }
  return outcome;
}

}  // namespace cofferdam::orchestrator::cli
