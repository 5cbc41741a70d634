// What passes between a command (`exec`) and the supervisor of a running sandbox: packets over the
// socket `operations` in the sandbox's directory, one connection per operation. Pure, but for the
// memory files.
//
//   C→S {"type":"exec","directory":PATH|null,"terminal":B,"arguments":N,"timeout_ms":N|null,
//        "tool":TEXT|null,"approval":ID|null,"who":TEXT|null,"checkpoint":ID|null}
//       fds: [fields] and, without terminal, stdin, stdout, stderr. Fields, each ended by NUL: the
//       arguments, then variables NAME=value that are added to the sandbox's
//   S→C {"type":"started","operation":ID,"output":BYTES|null}  fds: [names and values, each ended
//   by NUL, that are
//       not to be printed] and, with terminal, [pty master]
//   S→C {"type":"ended","ending":TEXT,"value":N,"message":TEXT}      as in docs/events.md
//   S→C {"type":"refused","message":TEXT}
//   C→S {"type":"signal","number":N}       to the operation's process group
//
// The end of the connection ends the operation: SIGHUP, and after the grace time SIGKILL.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/os/fd_passing.h"
#include "orchestrator/declared_tool.h"
#include "orchestrator/secrets/known_secret.h"
#include "orchestrator/supervisor.h"

namespace cofferdam::orchestrator {

struct ExecRequest {
  std::vector<std::string> argv;
  std::vector<std::string> env;  // NAME=value
  std::optional<std::string> directory;
  bool terminal = false;
  std::optional<std::chrono::milliseconds> timeout;
  std::string tool;  // empty: none
  ToolApproval approval;
  std::string checkpoint;  // of what the sandbox showed before; empty: none
};

// "exited", … of an ending, and back.
std::string_view to_text(Ending ending);
std::optional<Ending> ending_from_text(std::string_view text);

struct OperationStarted {
  std::string operation;
  std::vector<secrets::KnownSecret> secrets;
  std::optional<std::uint64_t> output_bytes;  // the limit of what the command prints
  os::UniqueFd terminal;
};

// The command's side. `stdio` is empty with a terminal, else three.
Status send_exec(int socket, const ExecRequest& request, const std::vector<int>& stdio);
// An error is also the supervisor's refusal.
Result<OperationStarted> parse_started(os::Packet packet, bool terminal);
Result<RunOutcome> parse_ended(const os::Packet& packet);

// The supervisor's side.
struct ReceivedExec {
  ExecRequest request;
  std::vector<os::UniqueFd> stdio;
};
Result<ReceivedExec> parse_exec(os::Packet packet);
// A signal's number, 1 to 64.
Result<int> parse_signal(const os::Packet& packet);
Status send_started(int socket, const std::string& operation,
                    const std::vector<secrets::KnownSecret>& secrets,
                    std::optional<std::uint64_t> output_bytes, int terminal);
Status send_ended(int socket, const RunOutcome& outcome);
Status send_refused(int socket, const std::string& message);
Status send_signal(int socket, int number);

}  // namespace cofferdam::orchestrator
