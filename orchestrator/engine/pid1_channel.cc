#include "orchestrator/engine/pid1_channel.h"

#include "common/base/json_text.h"
#include "common/os/fd_passing.h"
#include "common/os/memory_file.h"
#include "common/os/pipes.h"
#include "common/os/terminal.h"
#include "orchestrator/engine/wait_readable.h"

namespace cofferdam::orchestrator {
namespace {

constexpr std::chrono::seconds kSetUpPatience{10};
constexpr int kMostWorkloads = 1 << 20;

Result<Json> parse_message(const std::string& bytes) {
  TRY_ASSIGN(Json body, parse_json(bytes));
  if (!body.is_object() || !body.contains("type") || !body["type"].is_string()) {
    return Error("a message without a type");
  }
  return body;
}

template <typename Number>
Json number_or_null(const std::optional<Number>& number) {
  return number ? Json(*number) : Json();
}

Result<int> bounded(const Json& body, const char* key, int lowest, int highest) {
  const auto found = body.find(key);
  if (found == body.end() || !found->is_number_integer()) {
    return Error(std::string("no number: ") + key);
  }
  const auto value = found->get<std::int64_t>();
  if (value < lowest || value > highest) return Error(std::string("out of range: ") + key);
  return static_cast<int>(value);
}

}  // namespace

ProgramRules program_rules(const Plan& plan) {
  return {plan.limits.pids, plan.limits.open_files, plan.limits.file_size, plan.executables};
}

Result<WorkloadEnd> parse_workload_end(const std::string& bytes) {
  constexpr int kLastErrno = 4095;
  constexpr int kLastSignal = 64;
  TRY_ASSIGN(const Json body, parse_message(bytes));
  WorkloadEnd end;
  TRY_ASSIGN(end.id, bounded(body, "id", 0, kMostWorkloads));
  const auto& type = body["type"].get_ref<const std::string&>();
  if (type == "exited") {
    end.kind = WorkloadEnd::Kind::kExited;
    TRY_ASSIGN(end.value, bounded(body, "status", 0, 255));
  } else if (type == "signalled") {
    end.kind = WorkloadEnd::Kind::kSignalled;
    TRY_ASSIGN(end.value, bounded(body, "number", 1, kLastSignal));
  } else if (type == "not_started") {
    end.kind = WorkloadEnd::Kind::kNotStarted;
    TRY_ASSIGN(end.value, bounded(body, "errno", 0, kLastErrno));
  } else {
    return Error("an unexpected message");
  }
  return end;
}

Result<Pid1Channel::SetUp> Pid1Channel::set_up(const SeccompPrograms& programs, bool terminal,
                                               const ProgramRules& rules, int interrupt) {
  // From here on process 1 cannot make us wait: neither for a message nor for room in its queue.
  TRY(os::set_nonblocking(socket_.get(), true));
  const Json body{{"type", "setup"},
                  {"terminal", terminal},
                  {"pids", number_or_null(rules.processes)},
                  {"open_files", number_or_null(rules.open_files)},
                  {"file_size", number_or_null(rules.file_size)},
                  {"executables", rules.executables}};
  TRY(os::send_packet(socket_.get(), canonical_json(body),
                      {programs.refusals.get(), programs.allowlist.get()}));
  TRY(wait_readable(socket_.get(), interrupt, kSetUpPatience));
  TRY_ASSIGN(os::Packet packet, os::receive_packet(socket_.get()));
  if (packet.end_of_stream) return Error("process 1 ended before it was set up", EPIPE);
  TRY_ASSIGN(const Json answer, parse_message(packet.bytes));
  if (answer["type"] == "failed") {
    return Error(answer.value("message", std::string("process 1 failed")));
  }
  if (answer["type"] != "ready" || packet.fds.size() != (terminal ? 2U : 1U)) {
    return Error("an unexpected answer of process 1");
  }
  TRY_ASSIGN(os::SeccompListener listener, os::SeccompListener::adopt(std::move(packet.fds[0])));
  SetUp result{std::move(listener), {}};
  if (terminal) {
    if (!os::is_pty_master(packet.fds[1].get())) return Error("process 1 sent no terminal");
    result.terminal = std::move(packet.fds[1]);
  }
  return result;
}

Status Pid1Channel::spawn(int id, const WorkloadSpec& spec, const std::vector<int>& stdio) {
  std::vector<std::string> fields{spec.directory, std::to_string(spec.argv.size())};
  fields.insert(fields.end(), spec.argv.begin(), spec.argv.end());
  fields.insert(fields.end(), spec.env.begin(), spec.env.end());
  std::string text;
  for (const std::string& field : fields) text.append(field).push_back('\0');
  TRY_ASSIGN(const os::UniqueFd file, os::make_memory_file("spawn", text));
  std::vector<int> fds{file.get()};
  fds.insert(fds.end(), stdio.begin(), stdio.end());
  const Json message{{"type", "spawn"}, {"id", id}, {"terminal", stdio.empty()}};
  return os::send_packet(socket_.get(), canonical_json(message), fds);
}

Status Pid1Channel::signal(int id, int number) {
  const Json message{{"type", "signal"}, {"id", id}, {"number", number}};
  return os::send_packet(socket_.get(), canonical_json(message));
}

Result<Pid1Channel::Report> Pid1Channel::receive() {
  TRY_ASSIGN(os::Packet packet, os::receive_packet(socket_.get()));
  if (packet.end_of_stream) return Error("process 1 is gone", EPIPE);
  TRY_ASSIGN(const Json body, parse_message(packet.bytes));
  Report report;
  if (body["type"] != "terminal") {
    TRY_ASSIGN(report.end, parse_workload_end(packet.bytes));
    report.id = report.end->id;
    return report;
  }
  TRY_ASSIGN(report.id, bounded(body, "id", 0, kMostWorkloads));
  if (packet.fds.size() != 1 || !os::is_pty_master(packet.fds[0].get())) {
    return Error("process 1 sent no terminal");
  }
  report.terminal = std::move(packet.fds[0]);
  return report;
}

Result<WorkloadEnd> Pid1Channel::receive_end() {
  TRY_ASSIGN(const Report report, receive());
  if (!report.end) return Error("an unexpected message");
  return *report.end;
}

}  // namespace cofferdam::orchestrator
