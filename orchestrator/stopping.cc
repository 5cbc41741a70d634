#include "orchestrator/stopping.h"

#include <signal.h>

#include <thread>

#include "common/os/process_identity.h"
#include "orchestrator/reap.h"
#include "orchestrator/stored_plan.h"

namespace cofferdam::orchestrator {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPause{5};
constexpr std::chrono::seconds kAfterKill{5};
// How long a supervisor whose sandbox has ended may take for itself; one that asks its user
// something takes longer, and nobody waits for that.
constexpr std::chrono::seconds kLastWords{2};

struct Pending {
  Stopped stopped;
  std::optional<os::ProcessHandle> supervisor;
  Clock::time_point deadline;
  bool killed = false;
  bool record_ended = false;
  bool ended = false;
};

std::chrono::milliseconds grace_of(const SandboxRecord& record) {
  const auto restored = load_plan(record);
  return restored.ok() ? restored->plan.limits.grace : LimitsPlan{}.grace;
}

// What a supervisor that died without an end left is removed here, not at the next reap.
Status clean_up(const SandboxStore& store, const SandboxRecord& record) {
  auto owned = store.try_own(record);
  // Another command may look at it just now.
  for (int attempt = 0; attempt < 200 && owned.ok() && !*owned; ++attempt) {
    std::this_thread::sleep_for(kPause);
    owned = store.try_own(record);
  }
  if (!owned.ok()) {
    return owned.error().error_number() == ENOENT ? Status() : Status(owned.error());
  }
  if (!*owned) return Error("its lock is held, although its supervisor has ended");
  OwnedSandbox sandbox = std::move(**owned);
  if (sandbox.record.ended_for_good()) return {};
  const Reaped reaped = reap_one(&sandbox);
  if (!reaped.failed.empty()) return Error(reaped.failed.front());
  return {};
}

void begin(Pending* pending, bool force) {
  const SandboxRecord& record = pending->stopped.record;
  if (record.ended_for_good()) {
    pending->ended = true;
    return;
  }
  auto supervisor = os::open_process(static_cast<pid_t>(record.supervisor_pid),
                                     record.supervisor_start_ticks, record.boot_id);
  if (!supervisor.ok()) return;  // an orphan
  pending->supervisor.emplace(std::move(supervisor).value());
  pending->stopped.was_running = true;
  pending->deadline = Clock::now() + grace_of(record) + kStopPatience;
  // The second one says: do not wait (supervision). Equal signals that are pending are one.
  pending->stopped.done = pending->supervisor->signal(SIGTERM);
  if (force) (void)pending->supervisor->signal(SIGHUP).ok();
}

// Whether the record says that it has ended although its supervisor lives on: a `run` in a terminal
// still tells and asks.
bool has_ended_in_record(const SandboxStore& store, const SandboxRecord& record) {
  const auto now = store.reload(record);
  return !now.ok() || now->ended_for_good();
}

void advance(const SandboxStore& store, Pending* pending, std::chrono::milliseconds wait) {
  Stopped& stopped = pending->stopped;
  if (pending->supervisor && !pending->supervisor->ended_within(wait)) {
    if (!stopped.done.ok()) {
      pending->ended = true;
    } else if (pending->record_ended) {
      pending->ended = Clock::now() >= pending->deadline;
    } else if (has_ended_in_record(store, stopped.record)) {
      pending->record_ended = true;
      pending->deadline = Clock::now() + kLastWords;
    } else if (Clock::now() >= pending->deadline && !pending->killed) {
      pending->killed = true;
      pending->deadline = Clock::now() + kAfterKill;
      (void)pending->supervisor->signal(SIGKILL).ok();
    } else if (Clock::now() >= pending->deadline) {
      pending->ended = true;
      stopped.done = Error("its supervisor does not end, not even killed");
    }
    return;
  }
  pending->ended = true;
  stopped.done = clean_up(store, stopped.record);
}

}  // namespace

std::vector<Stopped> stop_sandboxes(const SandboxStore& store,
                                    const std::vector<SandboxRecord>& records, bool force) {
  std::vector<Pending> all(records.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    all[i].stopped.record = records[i];
    begin(&all[i], force);
  }
  for (bool waiting = true; waiting;) {
    waiting = false;
    auto wait = kPause;
    for (Pending& pending : all) {
      if (pending.ended) continue;
      advance(store, &pending, wait);
      waiting = waiting || !pending.ended;
      wait = std::chrono::milliseconds(0);  // one pause a round
    }
  }
  std::vector<Stopped> out;
  for (Pending& pending : all) out.push_back(std::move(pending.stopped));
  return out;
}

}  // namespace cofferdam::orchestrator
