#include "orchestrator/engine/supervision.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "common/policy/reason.h"
#include "orchestrator/engine/exec_sessions.h"
#include "orchestrator/engine/poll_loop.h"
#include "orchestrator/engine/stdio_pump.h"

namespace cofferdam::orchestrator {
namespace {

constexpr int kMain = 1;  // the id of the one workload
constexpr std::chrono::seconds kStoppedDrain{2};

using Clock = PollLoop::Clock;
using Which = Services::Which;

WorkloadSpec make_spec(const Plan& plan) {
  WorkloadSpec spec{plan.argv, {}, plan.directory};
  for (const auto& [name, value] : plan.env) {
    if (!plan.own_env.contains(name)) spec.env.push_back(name + "=" + value);
  }
  for (const auto& [name, value] : plan.own_env) spec.env.push_back(name + "=" + value);
  for (const SecretPlan& secret : plan.secrets) {
    if (secret.as_file || plan.argv.empty() || !secret.is_for(plan.argv[0])) continue;
    spec.env.push_back(secret.name + "=" + secret.value);
  }
  return spec;
}

class Supervision final {
 public:
  Supervision(const Plan& plan, OwnedSandbox& sandbox, log::EventLog& events, Engine& engine,
              const os::SignalFd& signals)
      : plan_(plan), sandbox_(sandbox), events_(events), engine_(engine), signals_(signals) {}

  Result<RunOutcome> run(const std::function<void()>& running) {
    TRY_ASSIGN(StdioPump pump, make_pump());
    pump_ = &pump;
    TRY(pump.redact(known_secrets()));
    pump.limit_output(plan_.limits.output_bytes);
    if (plan_.argv.empty()) {
      main_ended_ = true;
      outcome_ = {Ending::kExited, 0, ""};
    } else {
      const auto spawned = engine_.pid1().spawn(kMain, make_spec(plan_), pump.workload_ends());
      if (!spawned.ok()) return spawned.error().context("start the workload");
    }
    if (plan_.limits.timeout) timeout_ = Clock::now() + *plan_.limits.timeout;
    ExecSessions sessions(plan_, sandbox_.record, events_.fd(), engine_.pid1(), loop_,
                          known_secrets());
    sessions_ = &sessions;
    TRY(sessions.open());
    watch_all();
    pump.start(loop_);
    if (running) running();
    while (!ended_) {
      TRY(loop_.run_once(next_deadline()));
      check_deadlines();
      sessions.check_deadlines();
      pump.release_held(loop_);
      if (pump.took_the_limit()) record_output_limit();
    }
    finish(pump);
    sessions.end_all(stopping_ || outcome_.ending == Ending::kBroken
                         ? outcome_
                         : RunOutcome{Ending::kSignalled, SIGKILL, "the sandbox ended"});
    outcome_.output_bytes = pump.passed();
    return outcome_;
  }

 private:
  Result<StdioPump> make_pump() {
    if (plan_.terminal) {
      return StdioPump::with_terminal(engine_.take_terminal(), plan_.interactive);
    }
    return StdioPump::with_pipes(plan_.interactive);
  }

  // What the workload was given by names that say so.
  std::vector<secrets::KnownSecret> known_secrets() const {
    std::vector<secrets::KnownSecret> known;
    for (const SecretPlan& secret : plan_.secrets) known.push_back({secret.name, secret.value});
    for (const auto& [name, value] : plan_.env) {
      if (!secrets::names_a_secret(name) || value.size() < secrets::kLeastSecret) continue;
      known.push_back({name, value});
    }
    return known;
  }

  void watch_all() {
    loop_.watch(signals_.fd(), POLLIN, [this](short) { on_signals(); });
    loop_.watch(engine_.pid1().fd(), POLLIN, [this](short) { on_process_one(); });
    loop_.watch(engine_.listener().fd(), POLLIN, [this](short events) { on_syscall(events); });
    for (const Which which : {Which::kFsproxy, Which::kEgressproxy}) {
      loop_.watch(engine_.services().pidfd(which), POLLIN,
                  [this, which](short) { on_service_death(which); });
    }
  }

  void on_signals() {
    while (const auto number = signals_.next()) {
      if (*number == SIGWINCH) {
        pump_->resize();
      } else if (*number == SIGINT && ++interrupts_ == 1 && !stopping_) {
        forward(SIGINT);
      } else if (*number == SIGQUIT && !stopping_) {
        forward(SIGQUIT);
      } else if (*number != SIGPIPE) {
        stop({Ending::kInterrupted, *number, "stopped by a signal"});
      }
    }
  }

  void on_process_one() {
    auto report = engine_.pid1().receive();
    if (!report.ok() && report.error().error_number() == EAGAIN) return;
    if (!report.ok()) {
      if (!stopping_) {
        outcome_ = {Ending::kBroken, 0,
                    "process 1 of the sandbox failed: " + report.error().message()};
      }
      ended_ = true;
      return;
    }
    if (report->id == kMain && report->end && !main_ended_) {
      on_main_end(*report->end);
    } else if (!sessions_->on_report(std::move(report).value())) {
      outcome_ = {Ending::kBroken, 0, "process 1 of the sandbox told of an unknown workload"};
      ended_ = true;
    }
    if (stopping_ && main_ended_ && sessions_->idle()) ended_ = true;
  }

  // A kept sandbox goes on without its first command; any other ends with it.
  void on_main_end(const WorkloadEnd& end) {
    main_ended_ = true;
    sessions_->count_idle_from_now();
    if (!stopping_) {
      outcome_ = outcome_of(end, plan_.argv.front());
    }
    if (!plan_.keep) {
      ended_ = !stopping_;
      return;
    }
    (void)events_
        .write("command_ended", {{"ending", to_text(outcome_.ending)},
                                 {"status", outcome_.status},
                                 {"message", outcome_.message}})
        .ok();
  }

  void on_syscall(short revents) {
    if ((revents & POLLIN) == 0) {  // the last process under the filter is gone
      loop_.unwatch(engine_.listener().fd());
      return;
    }
    const auto notice = engine_.listener().receive();
    if (!notice.ok() || !*notice) return;
    const std::string name = syscall_name((*notice)->number);
    (void)events_
        .write("syscall", {{"verdict", policy::to_text(policy::Verdict::kDeny)},
                           {"reason", policy::to_text(policy::Reason::kSyscall)},
                           {"rule", "seccomp"},
                           {"retryable", false},
                           {"syscall", name}})
        .ok();
    (void)engine_.listener().refuse(**notice, engine_.seccomp().answer(name)).ok();
  }

  void on_service_death(Which which) {
    loop_.unwatch(engine_.services().pidfd(which));
    const std::string how = engine_.services().reap(which, events_);
    outcome_ = {Ending::kBroken, 0,
                std::string("cofferdam-") + Services::name_of(which) + " ended (" + how +
                    "): the workload was stopped; what it wrote until then can be exported: "
                    "cofferdam export " +
                    plan_.sandbox_name};
    ended_ = true;
  }

  void forward(int number) { (void)engine_.pid1().signal(kMain, number).ok(); }

  // The first call asks the workload to end, a later one does not wait any longer.
  void stop(RunOutcome outcome) {
    if (stopping_) {
      ended_ = true;
      return;
    }
    stopping_ = true;
    // A kept sandbox whose command has ended by itself is what that command made of it.
    const bool as_asked = plan_.keep && main_ended_ && outcome.ending == Ending::kInterrupted;
    if (!as_asked) outcome_ = std::move(outcome);
    (void)sandbox_.set_state(SandboxState::kStopping).ok();
    if (!main_ended_) {
      forward(SIGTERM);
      forward(SIGCONT);  // a stopped one has to wake up to see it
    }
    sessions_->stop();
    timeout_.reset();
    grace_ = Clock::now() + plan_.limits.grace;
    if (main_ended_ && sessions_->idle()) ended_ = true;
  }

  std::optional<Clock::time_point> next_deadline() const {
    auto next = stopping_ ? grace_ : timeout_;
    if (const auto idle = idle_end(); idle && (!next || *idle < *next)) next = idle;
    for (const auto& deadline : {pump_->next_release(), sessions_->next_deadline()}) {
      if (deadline && (!next || *deadline < *next)) next = deadline;
    }
    return next;
  }

  // When a kept sandbox that nothing runs in has waited long enough.
  std::optional<Clock::time_point> idle_end() const {
    if (!plan_.limits.idle || stopping_ || !main_ended_ || !sessions_->idle()) return std::nullopt;
    return sessions_->idle_since() + *plan_.limits.idle;
  }

  void check_deadlines() {
    const auto now = Clock::now();
    if (const auto idle = idle_end(); idle && now >= *idle) {
      (void)events_.write("limit", {{"limit", "idle"}, {"value", plan_.limits.idle->count()}}).ok();
      stop({Ending::kInterrupted, SIGTERM, "no command ran in it"});
    }
    if (grace_ && now >= *grace_) ended_ = true;
    if (timeout_ && now >= *timeout_) {
      (void)events_.write("limit", {{"limit", "timeout"}, {"value", plan_.limits.timeout->count()}})
          .ok();
      stop({Ending::kTimedOut, 0, "the time limit was reached"});
    }
  }

  void record_output_limit() {
    (void)events_.write("limit", {{"limit", "output"}, {"value", *plan_.limits.output_bytes}}).ok();
  }

  void finish(StdioPump& pump) {
    if (!stopping_) (void)sandbox_.set_state(SandboxState::kStopping).ok();
    bool give_up = false;
    loop_.watch(signals_.fd(), POLLIN, [this, &give_up](short) {
      while (const auto number = signals_.next()) {
        give_up = give_up || (*number != SIGWINCH && *number != SIGPIPE);
      }
    });
    loop_.unwatch(engine_.pid1().fd());
    loop_.unwatch(engine_.listener().fd());
    for (const Which which : {Which::kFsproxy, Which::kEgressproxy}) {
      if (engine_.services().running(which)) loop_.unwatch(engine_.services().pidfd(which));
    }
    engine_.end_workload();
    std::optional<Clock::time_point> deadline;
    if (stopping_ || outcome_.ending == Ending::kBroken) deadline = Clock::now() + kStoppedDrain;
    pump.drain(loop_, deadline, give_up);
    loop_.unwatch(signals_.fd());
    pump.stop(loop_);
  }

  const Plan& plan_;
  OwnedSandbox& sandbox_;
  log::EventLog& events_;
  Engine& engine_;
  const os::SignalFd& signals_;
  PollLoop loop_;
  StdioPump* pump_ = nullptr;
  ExecSessions* sessions_ = nullptr;
  RunOutcome outcome_;
  bool main_ended_ = false;
  bool stopping_ = false;
  bool ended_ = false;
  int interrupts_ = 0;
  std::optional<Clock::time_point> timeout_;
  std::optional<Clock::time_point> grace_;
};

}  // namespace

Result<RunOutcome> run_workload(const Plan& plan, OwnedSandbox& sandbox, log::EventLog& events,
                                Engine& engine, const os::SignalFd& signals,
                                const std::function<void()>& running) {
  return Supervision(plan, sandbox, events, engine, signals).run(running);
}

}  // namespace cofferdam::orchestrator
