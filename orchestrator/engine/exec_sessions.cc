#include "orchestrator/engine/exec_sessions.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "common/os/files.h"
#include "common/os/pipes.h"
#include "common/os/sockets.h"

namespace cofferdam::orchestrator {
namespace {

constexpr int kFirstId = 2;  // 1 is the main command
constexpr int kLastId = 1 << 20;
constexpr std::size_t kMostSessions = 64;

// The sandbox's variables, the secrets of this program, and the caller's over them.
std::vector<std::string> merged_env(const Plan& plan, const std::string& program,
                                    const std::vector<std::string>& added) {
  std::map<std::string, std::string> variables = plan.env;
  for (const SecretPlan& secret : plan.secrets) {
    if (!secret.as_file && secret.is_for(program)) variables[secret.name] = secret.value;
  }
  for (const std::string& text : added) {
    const auto equals = text.find('=');
    variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  std::vector<std::string> list;
  list.reserve(variables.size());
  for (const auto& [name, value] : variables) list.push_back(name + "=" + value);
  return list;
}

// The mode that the sandbox was switched to last; empty: it never was.
std::string switched_mode(const SandboxRecord& record) {
  const auto text = os::read_file(record.directory / "modes.json");
  if (!text.ok()) return {};
  const auto json = parse_json(*text);
  if (!json.ok() || !json->is_array() || json->empty()) return {};
  return json->back().is_object() ? json->back().value("to", "") : "";
}

}  // namespace

RunOutcome outcome_of(const WorkloadEnd& end, const std::string& program) {
  switch (end.kind) {
    case WorkloadEnd::Kind::kExited:
      return {Ending::kExited, end.value, ""};
    case WorkloadEnd::Kind::kSignalled:
      return {Ending::kSignalled, end.value, ""};
    case WorkloadEnd::Kind::kNotStarted:
      break;
  }
  const bool missing = end.value == ENOENT || end.value == ENOTDIR;
  return {missing ? Ending::kNotFound : Ending::kCannotRun, end.value,
          program + ": " + std::strerror(end.value)};
}

struct ExecSessions::Session {
  int id = 0;
  os::UniqueFd socket;  // closed when the caller is gone
  std::string operation;
  std::string program;
  std::unique_ptr<log::EventLog> events;
  Clock::time_point begin;
  bool recorded = false;
  bool started = false;
  bool wants_terminal = false;
  // Where it was told to end: what that will have been, and when it is killed.
  std::optional<RunOutcome> ending;
  std::optional<Clock::time_point> timeout;
  std::optional<Clock::time_point> kill_at;
  std::chrono::milliseconds limit{0};
};

ExecSessions::ExecSessions(const Plan& plan, const SandboxRecord& record, int events_fd,
                           Pid1Channel& pid1, PollLoop& loop,
                           std::vector<secrets::KnownSecret> secrets)
    : plan_(plan),
      record_(record),
      events_fd_(events_fd),
      pid1_(pid1),
      loop_(loop),
      secrets_(std::move(secrets)),
      next_id_(kFirstId) {}

ExecSessions::~ExecSessions() {
  if (listener_) {
    loop_.unwatch(listener_.get());
    std::error_code ignored;
    std::filesystem::remove(record_.directory / kOperationsName, ignored);
  }
  for (const auto& [id, session] : sessions_) {
    if (session->socket) loop_.unwatch(session->socket.get());
  }
}

Status ExecSessions::open() {
  std::error_code ignored;
  std::filesystem::remove(record_.directory / kOperationsName, ignored);
  TRY_ASSIGN(listener_, os::listen_unix_packets(record_.directory, kOperationsName));
  loop_.watch(listener_.get(), POLLIN, [this](short) { accept(); });
  return {};
}

void ExecSessions::accept() {
  auto socket = os::accept_packets(listener_.get());
  if (!socket.ok()) return;
  const auto peer = os::peer_uid(socket->get());
  if (!peer.ok() || *peer != ::geteuid()) return;
  if (stopping_ || sessions_.size() >= kMostSessions || next_id_ >= kLastId) {
    (void)send_refused(socket->get(), stopping_ ? "the sandbox is stopping"
                                                : "too many commands run in this sandbox")
        .ok();
    return;
  }
  auto session = std::make_unique<Session>();
  session->id = next_id_++;
  session->socket = std::move(socket).value();
  loop_.watch(session->socket.get(), POLLIN, [this, id = session->id](short) { on_readable(id); });
  sessions_.emplace(session->id, std::move(session));
}

void ExecSessions::on_readable(int id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  Session& session = *found->second;
  auto packet = os::receive_packet(session.socket.get());
  if (!packet.ok() && packet.error().error_number() == EAGAIN) return;
  if (!packet.ok() || packet->end_of_stream) {  // the caller is gone
    loop_.unwatch(session.socket.get());
    session.socket.reset();
    if (!session.started) {
      drop(id);
    } else {
      (void)pid1_.signal(id, SIGHUP).ok();
      terminate(session, {Ending::kInterrupted, SIGHUP, "whoever started it is gone"});
    }
    return;
  }
  if (!session.started) {
    begin(session, std::move(packet).value());
  } else if (const auto number = parse_signal(*packet); number.ok()) {
    (void)pid1_.signal(id, *number).ok();
  }
}

void ExecSessions::begin(Session& session, os::Packet packet) {
  auto received = parse_exec(std::move(packet));
  if (!received.ok()) return refuse(session, received.error().message());
  if (stopping_) return refuse(session, "the sandbox is stopping");
  if (const auto done = start(session, std::move(received).value()); !done.ok()) {
    refuse(session, done.error().message());
  }
}

Status ExecSessions::start(Session& session, ReceivedExec received) {
  const ExecRequest& request = received.request;
  TRY_ASSIGN(session.operation, make_sandbox_id());
  TRY_ASSIGN(os::UniqueFd fd, os::duplicate_fd(events_fd_));
  session.events = std::make_unique<log::EventLog>(
      std::move(fd),
      log::EventContext{record_.id, session.operation, record_.manifest, "supervisor"});
  session.program = request.argv.front();
  session.begin = Clock::now();
  // The manifest's limit holds for each command; a caller may only ask for less.
  auto limit = request.timeout;
  if (plan_.limits.timeout && (!limit || *limit > *plan_.limits.timeout)) {
    limit = plan_.limits.timeout;
  }
  Json fields = plan_.trace;
  if (const std::string mode = switched_mode(record_); !mode.empty()) {
    fields["sandbox.profile"] = mode;
  }
  fields["parent"] = plan_.operation_id;
  fields["program"] = session.program;
  fields["tool.name"] = Json();
  if (!request.tool.empty()) {
    TRY_ASSIGN(const Json tool, check_tool(session, request));
    fields.update(tool);
  }
  fields["checkpoint.id"] = request.checkpoint.empty() ? Json() : Json(request.checkpoint);
  fields["timeout_ms"] = limit ? Json(limit->count()) : Json();
  fields["limits"] = plan_.limits.to_json();
  TRY(session.events->write("exec_started", fields));
  session.recorded = true;

  const WorkloadSpec spec{request.argv, merged_env(plan_, session.program, request.env),
                          request.directory.value_or(plan_.directory)};
  std::vector<int> stdio;
  for (const os::UniqueFd& end : received.stdio) stdio.push_back(end.get());
  TRY(pid1_.spawn(session.id, spec, stdio));
  session.started = true;
  session.wants_terminal = request.terminal;
  if (limit) {
    session.limit = *limit;
    session.timeout = session.begin + *limit;
  }
  // With a terminal the answer waits for it.
  if (request.terminal) return {};
  // A caller that is gone is noticed by the end of its connection.
  (void)send_started(session.socket.get(), session.operation, secrets_, plan_.limits.output_bytes,
                     -1)
      .ok();
  return {};
}

// The trace keys of a tool that the manifest lets be called; a refusal is recorded.
Result<Json> ExecSessions::check_tool(Session& session, const ExecRequest& request) {
  TRY_ASSIGN(const std::string text, os::read_file(record_.directory / "manifest.json"));
  TRY_ASSIGN(const Json manifest, parse_json(text));
  const ToolDecision decision = decide_tool(manifest, request.tool, request.approval);
  if (decision.allowed()) return decision.fields;
  TRY(session.events->write("tool_refused", refusal_fields(decision)));
  return Error(decision.message);
}

bool ExecSessions::on_report(Pid1Channel::Report report) {
  const auto found = sessions_.find(report.id);
  if (found == sessions_.end() || !found->second->started) return false;
  Session& session = *found->second;
  if (report.end) {
    finish(session, session.ending ? *session.ending : outcome_of(*report.end, session.program));
    return true;
  }
  if (!session.wants_terminal) return false;
  session.wants_terminal = false;
  if (session.socket) {
    (void)send_started(session.socket.get(), session.operation, secrets_, plan_.limits.output_bytes,
                       report.terminal.get())
        .ok();
  }
  return true;
}

std::optional<ExecSessions::Clock::time_point> ExecSessions::next_deadline() const {
  std::optional<Clock::time_point> next;
  for (const auto& [id, session] : sessions_) {
    for (const auto& deadline : {session->timeout, session->kill_at}) {
      if (deadline && (!next || *deadline < *next)) next = deadline;
    }
  }
  return next;
}

void ExecSessions::check_deadlines() {
  const auto now = Clock::now();
  for (const auto& [id, session] : sessions_) {
    if (session->kill_at && now >= *session->kill_at) {
      session->kill_at.reset();
      (void)pid1_.signal(id, SIGKILL).ok();
    }
    if (!session->timeout || now < *session->timeout) continue;
    (void)session->events->write("limit", {{"limit", "timeout"}, {"value", session->limit.count()}})
        .ok();
    terminate(*session, {Ending::kTimedOut, 0, "the time limit was reached"});
  }
}

// The first one decides what its end will have been.
void ExecSessions::terminate(Session& session, RunOutcome outcome) {
  session.timeout.reset();
  if (!session.ending) session.ending = std::move(outcome);
  (void)pid1_.signal(session.id, SIGTERM).ok();
  (void)pid1_.signal(session.id, SIGCONT).ok();
  if (!session.kill_at) session.kill_at = Clock::now() + plan_.limits.grace;
}

void ExecSessions::stop() {
  stopping_ = true;
  std::vector<int> waiting;
  for (const auto& [id, session] : sessions_) {
    if (session->started) {
      terminate(*session, {Ending::kInterrupted, SIGTERM, "the sandbox was stopped"});
    } else {
      waiting.push_back(id);
    }
  }
  for (const int id : waiting) {
    refuse(*sessions_.at(id), "the sandbox is stopping");
  }
}

void ExecSessions::end_all(const RunOutcome& why) {
  while (!sessions_.empty()) {
    Session& session = *sessions_.begin()->second;
    if (!session.started) {
      refuse(session, "the sandbox ended");
    } else {
      finish(session, session.ending ? *session.ending : why);
    }
  }
}

void ExecSessions::refuse(Session& session, const std::string& why) {
  if (session.recorded) {  // as started, and was not
    (void)session.events
        ->write("exec_ended", {{"ending", to_text(Ending::kBroken)},
                               {"status", 0},
                               {"exit_status", RunOutcome{}.exit_status()},
                               {"message", why},
                               {"duration_ms", 0}})
        .ok();
  }
  if (session.socket) (void)send_refused(session.socket.get(), why).ok();
  drop(session.id);
}

void ExecSessions::finish(Session& session, const RunOutcome& outcome) {
  const auto duration =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - session.begin).count();
  (void)session.events
      ->write("exec_ended", {{"ending", to_text(outcome.ending)},
                             {"status", outcome.status},
                             {"exit_status", outcome.exit_status()},
                             {"message", outcome.message},
                             {"duration_ms", duration}})
      .ok();
  if (session.socket) (void)send_ended(session.socket.get(), outcome).ok();
  drop(session.id);
}

void ExecSessions::drop(int id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  if (found->second->socket) loop_.unwatch(found->second->socket.get());
  sessions_.erase(found);
  count_idle_from_now();
}

}  // namespace cofferdam::orchestrator
