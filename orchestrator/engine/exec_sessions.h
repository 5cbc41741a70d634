// The further commands of a running sandbox: the supervisor listens in the sandbox's directory,
// takes requests of its own user, has process 1 start them and tells how they ended. Their bytes
// never pass the supervisor: a command's stdio is its caller's pipes, or a pty made inside.
//
// Used on the supervisor's thread. A caller cannot make it wait.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/log/event_log.h"
#include "common/os/unique_fd.h"
#include "orchestrator/engine/operation_messages.h"
#include "orchestrator/engine/pid1_channel.h"
#include "orchestrator/engine/poll_loop.h"
#include "orchestrator/plan.h"
#include "orchestrator/sandbox_store.h"
#include "orchestrator/supervisor.h"

namespace cofferdam::orchestrator {

// How a workload ended, as a run's outcome; `program` is for the message.
RunOutcome outcome_of(const WorkloadEnd& end, const std::string& program);

class ExecSessions final {
 public:
  using Clock = PollLoop::Clock;

  // Everything outlives it. `secrets` are not to be printed by any command.
  ExecSessions(const Plan& plan, const SandboxRecord& record, int events_fd, Pid1Channel& pid1,
               PollLoop& loop, std::vector<secrets::KnownSecret> secrets);
  ~ExecSessions();
  ExecSessions(const ExecSessions&) = delete;
  ExecSessions& operator=(const ExecSessions&) = delete;

  Status open();
  // What process 1 told about a workload that is not the main one; false: it is none of ours.
  bool on_report(Pid1Channel::Report report);
  bool idle() const { return sessions_.empty(); }
  // Since when, where it is; from the start where there was no command yet.
  Clock::time_point idle_since() const { return idle_since_; }
  void count_idle_from_now() { idle_since_ = Clock::now(); }

  std::optional<Clock::time_point> next_deadline() const;
  void check_deadlines();

  // No further command is taken; those that run get SIGTERM.
  void stop();
  // Every process is gone: what still counted as running ended with the sandbox.
  void end_all(const RunOutcome& why);

 private:
  struct Session;
  void accept();
  void on_readable(int id);
  void begin(Session& session, os::Packet packet);
  Status start(Session& session, ReceivedExec received);
  Result<Json> check_tool(Session& session, const ExecRequest& request);
  void refuse(Session& session, const std::string& why);
  void terminate(Session& session, RunOutcome outcome);
  void finish(Session& session, const RunOutcome& outcome);
  void drop(int id);

  const Plan& plan_;
  const SandboxRecord& record_;
  int events_fd_;
  Pid1Channel& pid1_;
  PollLoop& loop_;
  std::vector<secrets::KnownSecret> secrets_;
  os::UniqueFd listener_;
  bool stopping_ = false;
  Clock::time_point idle_since_ = Clock::now();
  int next_id_;
  std::map<int, std::unique_ptr<Session>> sessions_;
};

}  // namespace cofferdam::orchestrator
