// The supervisor's end of the socket to process 1. Everything that comes from there is hostile:
// packets are bounded, a message that does not parse ends the sandbox.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/os/seccomp_listener.h"
#include "common/os/unique_fd.h"
#include "orchestrator/engine/seccomp_policy.h"
#include "orchestrator/plan.h"

namespace cofferdam::orchestrator {

// How a workload ended, as process 1 tells it.
struct WorkloadEnd {
  enum class Kind : std::uint8_t { kExited, kSignalled, kNotStarted };
  Kind kind = Kind::kExited;
  int id = 0;
  int value = 0;  // exit status 0..255, signal 1..64, or errno
};

struct WorkloadSpec {
  std::vector<std::string> argv;
  std::vector<std::string> env;
  std::string directory;
};

// What holds for every program that process 1 starts.
struct ProgramRules {
  std::optional<std::uint32_t> processes;  // per user; none: a control group counts them, or nobody
  std::optional<std::uint64_t> open_files;
  std::optional<std::uint64_t> file_size;
  std::vector<std::string> executables;  // paths inside; empty: everything
};

class Pid1Channel final {
 public:
  explicit Pid1Channel(os::UniqueFd socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }

  struct SetUp {
    os::SeccompListener listener;
    os::UniqueFd terminal;  // pty master; only when asked for
  };
  // Installs the filter; waits for the answer until the descriptor `interrupt` is readable (-1:
  // none) or ten seconds have passed.
  Result<SetUp> set_up(const SeccompPrograms& programs, bool terminal, const ProgramRules& rules,
                       int interrupt);

  // `stdio` is empty (the terminal of set_up) or stdin, stdout, stderr.
  Status spawn(int id, const WorkloadSpec& spec, const std::vector<int>& stdio);
  // To the process group of workload `id`; one that has ended is no error.
  Status signal(int id, int number);

  struct Report {
    int id = 0;
    std::optional<WorkloadEnd> end;
    os::UniqueFd terminal;  // pty master of a further workload that is about to start
  };
  // The next message; call when readable. End of stream is an error with errno EPIPE, nothing there
  // yet one with EAGAIN.
  Result<Report> receive();
  // The same where only an end is expected.
  Result<WorkloadEnd> receive_end();

 private:
  os::UniqueFd socket_;
};

// What the plan says of every program.
ProgramRules program_rules(const Plan& plan);

// Pure: a report of process 1, or why it is none.
Result<WorkloadEnd> parse_workload_end(const std::string& bytes);

}  // namespace cofferdam::orchestrator
