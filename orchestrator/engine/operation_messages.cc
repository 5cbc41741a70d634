#include "orchestrator/engine/operation_messages.h"

#include <array>

#include "common/base/json_text.h"
#include "common/os/files.h"
#include "common/os/memory_file.h"

namespace cofferdam::orchestrator {
namespace {

constexpr std::array<std::string_view, 7> kEndings = {
    "exited", "signalled", "timed_out", "not_found", "cannot_run", "interrupted", "broken"};
constexpr std::size_t kMostFields = 8U << 20U;
constexpr std::size_t kMostSecrets = 16U << 20U;
constexpr std::size_t kMostMessage = 32U << 10U;
constexpr int kLastSignal = 64;

Result<Json> parse_message(const os::Packet& packet) {
  if (packet.end_of_stream) return Error("the other side is gone", EPIPE);
  TRY_ASSIGN(Json body, parse_json(packet.bytes));
  if (!body.is_object() || !body.contains("type") || !body["type"].is_string()) {
    return Error("a message without a type");
  }
  return body;
}

Error malformed(const Json::exception& fault) {
  return Error(std::string("a malformed message: ") + fault.what());
}

std::string shortened(const std::string& text) {
  return text.size() > kMostMessage ? text.substr(0, kMostMessage) : text;
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

// Fields that end with NUL each.
Result<std::vector<std::string>> split_fields(const std::string& text) {
  std::vector<std::string> fields;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\0', at);
    if (end == std::string::npos) return Error("a field without an end");
    fields.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return fields;
}

}  // namespace

std::string_view to_text(Ending ending) {
  return kEndings[static_cast<std::size_t>(ending)];
}

std::optional<Ending> ending_from_text(std::string_view text) {
  for (std::size_t i = 0; i < kEndings.size(); ++i) {
    if (kEndings[i] == text) return static_cast<Ending>(i);
  }
  return std::nullopt;
}

Status send_exec(int socket, const ExecRequest& request, const std::vector<int>& stdio) {
  std::string text;
  for (const auto* list : {&request.argv, &request.env}) {
    for (const std::string& field : *list) text.append(field).push_back('\0');
  }
  if (text.size() > kMostFields) return Error("the command is too long");
  TRY_ASSIGN(const os::UniqueFd fields, os::make_memory_file("exec", text));
  Json body{{"type", "exec"},
            {"terminal", request.terminal},
            {"arguments", request.argv.size()},
            {"directory", request.directory ? Json(*request.directory) : Json()},
            {"timeout_ms", request.timeout ? Json(request.timeout->count()) : Json()},
            {"tool", text_or_null(request.tool)},
            {"approval", text_or_null(request.approval.id)},
            {"who", text_or_null(request.approval.who)},
            {"checkpoint", text_or_null(request.checkpoint)}};
  std::vector<int> fds{fields.get()};
  fds.insert(fds.end(), stdio.begin(), stdio.end());
  return os::send_packet(socket, canonical_json(body), fds);
}

Result<OperationStarted> parse_started(os::Packet packet, bool terminal) {
  TRY_ASSIGN(const Json body, parse_message(packet));
  try {
    if (body["type"] == "refused") return Error(body.at("message").get<std::string>());
    if (body["type"] == "ended") {
      TRY_ASSIGN(const RunOutcome outcome, parse_ended(packet));
      return Error(outcome.message.empty() ? "the sandbox ended" : outcome.message);
    }
    if (body["type"] != "started" || packet.fds.size() != (terminal ? 2U : 1U)) {
      return Error("an unexpected answer of the supervisor");
    }
    OperationStarted started;
    started.operation = body.at("operation").get<std::string>();
    if (!body.at("output").is_null()) started.output_bytes = body["output"].get<std::uint64_t>();
    TRY_ASSIGN(const std::string text, os::read_fd(packet.fds[0].get(), kMostSecrets));
    TRY_ASSIGN(const std::vector<std::string> fields, split_fields(text));
    if (fields.size() % 2 != 0) return Error("a name without a value");
    for (std::size_t i = 0; i < fields.size(); i += 2) {
      started.secrets.push_back({fields[i], fields[i + 1]});
    }
    if (terminal) started.terminal = std::move(packet.fds[1]);
    return started;
  } catch (const Json::exception& fault) {
    return malformed(fault);
  }
}

Result<RunOutcome> parse_ended(const os::Packet& packet) {
  TRY_ASSIGN(const Json body, parse_message(packet));
  try {
    if (body["type"] != "ended") return Error("an unexpected answer of the supervisor");
    const auto ending = ending_from_text(body.at("ending").get<std::string>());
    if (!ending) return Error("an unknown ending");
    return RunOutcome{*ending, body.at("value").get<int>(), body.at("message").get<std::string>()};
  } catch (const Json::exception& fault) {
    return malformed(fault);
  }
}

Result<ReceivedExec> parse_exec(os::Packet packet) {
  TRY_ASSIGN(const Json body, parse_message(packet));
  ReceivedExec received;
  ExecRequest& request = received.request;
  try {
    if (body["type"] != "exec") return Error("not a request to execute something");
    request.terminal = body.at("terminal").get<bool>();
    if (!body.at("directory").is_null()) request.directory = body["directory"].get<std::string>();
    for (const auto& [key, field] :
         {std::pair{"tool", &request.tool}, std::pair{"approval", &request.approval.id},
          std::pair{"who", &request.approval.who}, std::pair{"checkpoint", &request.checkpoint}}) {
      if (!body.at(key).is_null()) *field = body[key].get<std::string>();
    }
    if (!body.at("timeout_ms").is_null()) {
      const auto limit = body["timeout_ms"].get<std::int64_t>();
      if (limit < 1) return Error("a time limit below a millisecond");
      request.timeout = std::chrono::milliseconds(limit);
    }
    if (packet.fds.size() != (request.terminal ? 1U : 4U)) {
      return Error("wrong number of descriptors");
    }
    TRY_ASSIGN(const std::string text, os::read_fd(packet.fds[0].get(), kMostFields));
    TRY_ASSIGN(const std::vector<std::string> fields, split_fields(text));
    const auto count = body.at("arguments").get<std::uint64_t>();
    if (count == 0 || count > fields.size()) return Error("wrong number of arguments");
    const auto middle = fields.begin() + static_cast<std::ptrdiff_t>(count);
    request.argv.assign(fields.begin(), middle);
    request.env.assign(middle, fields.end());
  } catch (const Json::exception& fault) {
    return malformed(fault);
  }
  for (const std::string& variable : request.env) {
    if (const auto equals = variable.find('='); equals == 0 || equals == std::string::npos) {
      return Error("not a variable: " + variable.substr(0, equals));
    }
  }
  packet.fds.erase(packet.fds.begin());
  received.stdio = std::move(packet.fds);
  return received;
}

Result<int> parse_signal(const os::Packet& packet) {
  TRY_ASSIGN(const Json body, parse_message(packet));
  const auto number = body.find("number");
  if (body["type"] != "signal" || number == body.end() || !number->is_number_integer()) {
    return Error("an unexpected message");
  }
  const auto value = number->get<std::int64_t>();
  if (value < 1 || value > kLastSignal) return Error("not a signal");
  return static_cast<int>(value);
}

Status send_started(int socket, const std::string& operation,
                    const std::vector<secrets::KnownSecret>& secrets,
                    std::optional<std::uint64_t> output_bytes, int terminal) {
  std::string text;
  for (const auto& secret : secrets) {
    text.append(secret.name).push_back('\0');
    text.append(secret.value).push_back('\0');
  }
  TRY_ASSIGN(const os::UniqueFd file, os::make_memory_file("secrets", text));
  std::vector<int> fds{file.get()};
  if (terminal >= 0) fds.push_back(terminal);
  const Json body{{"type", "started"},
                  {"operation", operation},
                  {"output", output_bytes ? Json(*output_bytes) : Json()}};
  return os::send_packet(socket, canonical_json(body), fds);
}

Status send_ended(int socket, const RunOutcome& outcome) {
  return os::send_packet(socket, canonical_json(Json{{"type", "ended"},
                                                     {"ending", to_text(outcome.ending)},
                                                     {"value", outcome.status},
                                                     {"message", shortened(outcome.message)}}));
}

Status send_refused(int socket, const std::string& message) {
  return os::send_packet(
      socket, canonical_json(Json{{"type", "refused"}, {"message", shortened(message)}}));
}

Status send_signal(int socket, int number) {
  return os::send_packet(socket, canonical_json(Json{{"type", "signal"}, {"number", number}}));
}

}  // namespace cofferdam::orchestrator
