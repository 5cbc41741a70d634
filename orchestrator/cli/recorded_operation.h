// What a command does to a sandbox that has ended (merge, undo), as an operation in its events: its
// beginning before anything is done, and its end, with how long it took.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "common/log/event_log.h"
#include "orchestrator/sandbox_store.h"

namespace cofferdam::orchestrator::cli {

class RecordedOperation final {
 public:
  // Writes NAME_started, with the trace keys of the sandbox's run and `fields`. Nothing is to be
  // done that is not recorded.
  static Result<RecordedOperation> begin(const SandboxRecord& sandbox, std::string_view name,
                                         Json fields);
  // Writes NAME_ended, with exit_status, message, duration_ms and `fields`.
  void end(int exit_status, const std::string& message, Json fields);

  const std::string& id() const { return id_; }

 private:
  RecordedOperation() = default;
  std::string name_;
  std::string id_;
  std::chrono::steady_clock::time_point begun_;
  std::unique_ptr<log::EventLog> events_;
};

// The operation of the sandbox's run and the trace keys that it was recorded with; empty where they
// cannot be read.
Json trace_of(const SandboxRecord& sandbox);

}  // namespace cofferdam::orchestrator::cli
