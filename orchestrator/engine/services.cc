#include "orchestrator/engine/services.h"

#include <signal.h>

#include "common/os/files.h"
#include "common/os/sockets.h"
#include "orchestrator/engine/program_path.h"
#include "orchestrator/engine/wait_readable.h"
#include "orchestrator/sandbox_store.h"

namespace cofferdam::orchestrator {
namespace {

constexpr std::chrono::seconds kReadyPatience{10};
constexpr std::size_t kMaxReadyLine = 4096;
constexpr int kFirstFd = 3;

// The command line of a service under construction: descriptors get the numbers 3, 4, ….
class ServiceCommand final {
 public:
  explicit ServiceCommand(const std::filesystem::path& program) {
    options_.argv.push_back(program.string());
    options_.die_with_parent = true;
    options_.new_session = true;  // Ctrl-C at the terminal is for the workload, not for them
    options_.fds.emplace_back(2, 2);
  }
  void add(const std::string& flag, const std::string& value) {
    options_.argv.push_back(flag);
    options_.argv.push_back(value);
  }
  // `--flag PREFIXn`, where n is the number that `fd` has in the child.
  void add_fd(const std::string& flag, int fd, const std::string& prefix = "") {
    add(flag, prefix + std::to_string(next_));
    options_.fds.emplace_back(fd, next_++);
  }
  const os::SpawnOptions& options() const { return options_; }

 private:
  os::SpawnOptions options_;
  int next_ = kFirstFd;
};

struct Started {
  os::ChildProcess process;
  os::UniqueFd ready;
};

Result<Started> start_service(ServiceCommand command, const std::filesystem::path& policy,
                              int events_fd, int liveness_fd) {
  TRY_ASSIGN(os::Pipe ready, os::make_pipe());
  command.add("--policy", policy.string());
  command.add_fd("--events-fd", events_fd);
  command.add_fd("--ready-fd", ready.write.get());
  command.add_fd("--liveness-fd", liveness_fd);
  Started started;
  TRY_ASSIGN(started.process, os::ChildProcess::spawn(command.options()));
  started.ready = std::move(ready.read);
  return started;
}

Status wait_for_line(os::UniqueFd ready, int interrupt) {
  auto waited = wait_readable(ready.get(), interrupt, kReadyPatience);
  if (!waited.ok()) return waited.error();
  TRY_ASSIGN(const std::string line, os::read_fd(ready.get(), kMaxReadyLine));
  if (line == "ready\n") return {};
  if (line.empty()) return Error("ended before it was ready");
  return Error(line.substr(0, line.find('\n')));
}

std::string describe(const os::ExitStatus& status) {
  return (status.signalled ? "signal " : "exit status ") + std::to_string(status.code);
}

void record_end(log::EventLog& events, const char* name, const os::ExitStatus& status,
                bool expected) {
  (void)events
      .write("service_ended",
             {{"name", name}, {"status", status.shell_status()}, {"expected", expected}})
      .ok();
}

}  // namespace

const char* Services::name_of(Which which) {
  return which == Which::kFsproxy ? "fsproxy" : "egressproxy";
}

Result<Services> Services::start(const ServiceSettings& settings, ServiceFds fds) {
  TRY_ASSIGN(const auto fsproxy, find_own_program("cofferdam-fsproxy"));
  TRY_ASSIGN(const auto egressproxy, find_own_program("cofferdam-egressproxy"));
  TRY_ASSIGN(os::Pipe liveness, os::make_pipe());
  ServiceCommand fs_command(fsproxy);
  for (const auto& [name, fd] : fds.mounts) fs_command.add_fd("--mount", fd.get(), name + "=");
  ServiceCommand egress_command(egressproxy);
  for (const auto& fd : fds.gate) egress_command.add_fd("--gate-fd", fd.get());
  if (settings.change_ids) {
    egress_command.add("--uid", std::to_string(settings.uid));
    egress_command.add("--gid", std::to_string(settings.gid));
  }
  std::error_code ignored;
  std::filesystem::remove(settings.control_directory / kEgressControlName, ignored);
  TRY_ASSIGN(const os::UniqueFd control,
             os::listen_unix(settings.control_directory, kEgressControlName));
  egress_command.add_fd("--control-fd", control.get());
  std::filesystem::remove(settings.control_directory / kFilesControlName, ignored);
  TRY_ASSIGN(const os::UniqueFd files_control,
             os::listen_unix(settings.control_directory, kFilesControlName));
  fs_command.add_fd("--control-fd", files_control.get());
  TRY_ASSIGN(Started fs, start_service(fs_command, settings.fs_policy, settings.events_fd,
                                       liveness.read.get()));
  TRY_ASSIGN(Started egress, start_service(egress_command, settings.egress_policy,
                                           settings.events_fd, liveness.read.get()));
  Services services;
  services.liveness_ = std::move(liveness.write);
  services.fsproxy_ = std::move(fs.process);
  services.egressproxy_ = std::move(egress.process);
  services.fsproxy_ready_ = std::move(fs.ready);
  services.egressproxy_ready_ = std::move(egress.ready);
  return services;
}

Status Services::wait_ready(int interrupt, log::EventLog& events) {
  TRY(wait_for_line(std::move(fsproxy_ready_), interrupt).context("cofferdam-fsproxy"));
  TRY(wait_for_line(std::move(egressproxy_ready_), interrupt).context("cofferdam-egressproxy"));
  for (const Which which : {Which::kFsproxy, Which::kEgressproxy}) {
    (void)events.write("service_ready", {{"name", name_of(which)}, {"pid", process(which).pid()}})
        .ok();
  }
  return {};
}

void Services::kill(Which which) {
  if (running(which)) (void)process(which).signal(SIGKILL).ok();
}

void Services::end(std::chrono::milliseconds patience, log::EventLog& events) {
  liveness_.reset();
  for (const Which which : {Which::kFsproxy, Which::kEgressproxy}) {
    if (running(which)) (void)process(which).signal(SIGTERM).ok();
  }
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (const Which which : {Which::kFsproxy, Which::kEgressproxy}) {
    if (!running(which)) continue;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    auto ended = process(which).wait_for(std::max(left, std::chrono::milliseconds(0)));
    bool expected = true;
    if (ended.ok() && !*ended) {
      expected = false;
      kill(which);
      auto reaped = process(which).wait();
      if (reaped.ok()) ended = std::optional<os::ExitStatus>(*reaped);
    }
    if (ended.ok() && *ended) record_end(events, name_of(which), **ended, expected);
  }
}

std::string Services::reap(Which which, log::EventLog& events) {
  const auto status = process(which).wait();
  if (!status.ok()) return status.error().message();
  record_end(events, name_of(which), *status, false);
  return describe(*status);
}

}  // namespace cofferdam::orchestrator
