// Starting a program of the workload from process 1.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/os/unique_fd.h"

namespace cofferdam::init {

struct SpawnSpec {
  std::vector<std::string> argv;
  std::vector<std::string> env;  // NAME=value
  std::string directory;
};
// The fields of protocol.h.
Result<SpawnSpec> parse_spawn_spec(const std::string& text);

// A page shared with the child in which it leaves the errno of an exec that failed; exec drops the
// mapping, so that a program can never write to it.
class ExecReport final {
 public:
  static Result<ExecReport> create();
  ExecReport(ExecReport&& other) noexcept;
  ExecReport& operator=(ExecReport&&) = delete;
  ExecReport(const ExecReport&) = delete;
  ExecReport& operator=(const ExecReport&) = delete;
  ~ExecReport();
  int error_number() const { return *page_; }
  volatile int* page() const { return page_; }

 private:
  explicit ExecReport(volatile int* page) : page_(page) {}
  volatile int* page_ = nullptr;
};

struct Workload {
  pid_t pid = -1;
  ExecReport report;
};

struct WorkloadStdio {
  int in = -1;
  int out = -1;
  int err = -1;
  bool terminal = false;  // the three are one pty, which becomes the controlling terminal
};

// What holds for every program of the workload.
struct WorkloadRules {
  std::optional<std::uint64_t> max_processes;  // RLIMIT_NPROC
  std::optional<std::uint64_t> open_files;     // RLIMIT_NOFILE
  std::optional<std::uint64_t> file_size;      // RLIMIT_FSIZE, bytes
  int execute_rules = -1;                      // make_execute_rules(); -1: none
};

// Forks and executes in a session of its own with exactly descriptors 0, 1 and 2.
Result<Workload> start_workload(const SpawnSpec& spec, const WorkloadStdio& stdio,
                                const WorkloadRules& rules);

}  // namespace cofferdam::init
