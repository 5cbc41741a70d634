#include "orchestrator/egress_control.h"

#include <chrono>

#include "common/os/files.h"
#include "common/os/sockets.h"

namespace cofferdam::orchestrator {
namespace {

constexpr std::chrono::seconds kPatience{15};
constexpr std::size_t kMaxAnswer = 64U << 20U;

}  // namespace

Result<Json> ask_egressproxy(const SandboxRecord& sandbox, std::string_view method,
                             std::string_view target, std::string_view body) {
  TRY_ASSIGN(const os::UniqueFd fd,
             os::connect_unix(sandbox.directory, kEgressControlName, kPatience)
                 .context("the sandbox's egressproxy cannot be reached"));
  const std::string request =
      std::string(method) + " " + std::string(target) +
      " HTTP/1.1\r\nHost: control\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
      std::string(body);
  TRY(os::write_all(fd.get(), request));
  TRY_ASSIGN(const std::string answer, os::read_fd(fd.get(), kMaxAnswer));
  const std::size_t end = answer.find("\r\n\r\n");
  if (!answer.starts_with("HTTP/1.1 ") || end == std::string::npos) {
    return Error("the sandbox's egressproxy gave no answer");
  }
  TRY_ASSIGN(Json json, parse_json(answer.substr(end + 4)));
  if (answer.compare(9, 4, "200 ") == 0) return json;
  return Error("the sandbox's egressproxy refused it: " + json.value("error", "no reason"));
}

}  // namespace cofferdam::orchestrator
