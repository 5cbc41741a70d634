#include <poll.h>
#include <signal.h>

#include <optional>

#include "common/os/signal_fd.h"
#include "common/os/sockets.h"
#include "orchestrator/cli/exec.h"
#include "orchestrator/engine/poll_loop.h"
#include "orchestrator/engine/stdio_pump.h"
#include "orchestrator/engine/wait_readable.h"

namespace cofferdam::orchestrator::cli {
namespace {

constexpr std::chrono::seconds kAnswerPatience{15};

Result<os::UniqueFd> connect(const SandboxRecord& record) {
  auto socket = os::connect_unix_packets(record.directory, kOperationsName);
  if (socket.ok()) return socket;
  const int number = socket.error().error_number();
  if (number == ENOENT || number == ECONNREFUSED) return Error("nobody takes commands", EAGAIN);
  return socket;
}

class Execution final {
 public:
  Execution(os::UniqueFd socket, const os::SignalFd& signals, const ExecPlan& plan)
      : socket_(std::move(socket)), signals_(signals), plan_(plan) {}

  Result<RunOutcome> run() {
    std::optional<StdioPump> pump;
    if (!plan_.request.terminal) {
      TRY_ASSIGN(StdioPump pipes, StdioPump::with_pipes(plan_.interactive));
      pump.emplace(std::move(pipes));
    }
    TRY(send_exec(socket_.get(), plan_.request, pump ? pump->workload_ends() : std::vector<int>{}));
    TRY_ASSIGN(OperationStarted started, wait_for_start());
    if (!pump) {
      TRY_ASSIGN(StdioPump terminal,
                 StdioPump::with_terminal(std::move(started.terminal), plan_.interactive));
      pump.emplace(std::move(terminal));
    }
    pump_ = &*pump;
    TRY(pump->redact(started.secrets));
    pump->limit_output(started.output_bytes);
    loop_.watch(signals_.fd(), POLLIN, [this](short) { on_signals(); });
    loop_.watch(socket_.get(), POLLIN, [this](short) { on_message(); });
    pump->start(loop_);
    while (!outcome_) {
      TRY(loop_.run_once(pump->next_release()));
      pump->release_held(loop_);
    }
    loop_.unwatch(socket_.get());
    pump->drain_present(loop_, interrupted_);
    loop_.unwatch(signals_.fd());
    pump->stop(loop_);
    return *outcome_;
  }

 private:
  Result<OperationStarted> wait_for_start() {
    const auto waited = wait_readable(socket_.get(), -1, kAnswerPatience);
    if (!waited.ok()) return waited.error().context("the sandbox's supervisor");
    auto packet = os::receive_packet(socket_.get());
    if (!packet.ok()) return packet.error();
    if (packet->end_of_stream) return Error("the sandbox ended", EAGAIN);
    return parse_started(std::move(packet).value(), plan_.request.terminal);
  }

  void on_message() {
    const auto packet = os::receive_packet(socket_.get());
    const auto ended = packet.ok() ? parse_ended(*packet) : Result<RunOutcome>(packet.error());
    outcome_ =
        ended.ok() ? *ended : RunOutcome{Ending::kBroken, 0, "the sandbox's supervisor is gone"};
  }

  // The first Ctrl-C is the command's; the second ends it.
  void on_signals() {
    while (const auto number = signals_.next()) {
      if (*number == SIGPIPE) continue;
      if (*number == SIGWINCH) {
        pump_->resize();
        continue;
      }
      if ((*number == SIGINT && ++interrupts_ == 1) || *number == SIGQUIT) {
        (void)send_signal(socket_.get(), *number).ok();
        continue;
      }
      // Closing the connection ends the command.
      interrupted_ = true;
      outcome_ = RunOutcome{Ending::kInterrupted, *number, ""};
    }
  }

  os::UniqueFd socket_;
  const os::SignalFd& signals_;
  const ExecPlan& plan_;
  PollLoop loop_;
  StdioPump* pump_ = nullptr;
  std::optional<RunOutcome> outcome_;
  bool interrupted_ = false;
  int interrupts_ = 0;
};

}  // namespace

Result<RunOutcome> exec_in_running(const SandboxRecord& record, const ExecPlan& plan) {
  TRY_ASSIGN(os::UniqueFd socket, connect(record));
  TRY_ASSIGN(const os::SignalFd signals,
             os::SignalFd::create({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGPIPE}));
  return Execution(std::move(socket), signals, plan).run();
}

}  // namespace cofferdam::orchestrator::cli
