#include "orchestrator/cli/recorded_operation.h"

#include <fcntl.h>

#include "common/os/files.h"
#include "orchestrator/cli/surroundings.h"

namespace cofferdam::orchestrator::cli {

Json trace_of(const SandboxRecord& sandbox) {
  const auto text = os::read_file(sandbox.directory / "plan.json");
  if (!text.ok()) return Json::object();
  const auto plan = parse_json(*text);
  if (!plan.ok() || !plan->is_object()) return Json::object();
  Json trace = plan->value("trace", Json::object());
  if (const std::string run = plan->value("operation", ""); !run.empty()) trace["parent"] = run;
  return trace;
}

Result<RecordedOperation> RecordedOperation::begin(const SandboxRecord& sandbox,
                                                   std::string_view name, Json fields) {
  RecordedOperation operation;
  operation.name_ = name;
  operation.begun_ = std::chrono::steady_clock::now();
  TRY_ASSIGN(operation.id_, make_sandbox_id());
  TRY_ASSIGN(os::UniqueFd fd,
             os::open_file(sandbox.events(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, 0600));
  operation.events_ = std::make_unique<log::EventLog>(
      std::move(fd), log::EventContext{sandbox.id, operation.id_, sandbox.manifest, "supervisor"});
  Json all = trace_of(sandbox);
  all.update(fields);
  TRY(operation.events_->write(operation.name_ + "_started", all));
  return operation;
}

void RecordedOperation::end(int exit_status, const std::string& message, Json fields) {
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - begun_);
  fields["exit_status"] = exit_status;
  fields["message"] = message;
  fields["duration_ms"] = took.count();
  const Status written = events_->write(name_ + "_ended", fields);
  if (!written.ok()) note("the events: " + written.error().message());
}

}  // namespace cofferdam::orchestrator::cli
