#include "orchestrator/changes/merge.h"

#include <algorithm>
#include <array>
#include <csignal>

#include "orchestrator/changes/applier.h"
#include "orchestrator/changes/merge_plan.h"
#include "orchestrator/changes/session.h"
#include "orchestrator/changes/staging.h"
#include "orchestrator/changes/stale_reads.h"

namespace cofferdam::orchestrator::changes {
namespace {

// Signals that would end the process between two acts wait until the workspace is whole.
class SignalsHeld final {
 public:
  SignalsHeld() {
    sigset_t held;
    sigemptyset(&held);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP}) sigaddset(&held, number);
    ::pthread_sigmask(SIG_BLOCK, &held, &before_);
  }
  ~SignalsHeld() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t before_{};
};

Status write(const ReviewSession& session, const MergeOptions& options, MergeReport& report) {
  std::vector<const MergeItem*> taken;
  for (const MergeItem& item : report.items) {
    if (item.outcome == Outcome::kTaken) taken.push_back(&item);
  }
  if (taken.empty()) return {};
  const SignalsHeld held;
  TRY_ASSIGN(Staging staging, Staging::create(session.view.workspace()));
  Applier applier(session.view, staging, options.before_act);
  const Status applied = applier.apply(taken);
  if (!applied.ok()) {
    report.failure = applied.error().message();
    report.undone = applier.undo();
  } else {
    report.written = true;
  }
  if (!report.undone) {
    report.kept_aside = staging.name();
    return {};
  }
  if (const Status removed = staging.remove(session.view.workspace()); !removed.ok()) {
    report.warning = removed.error().message() + ": it is not needed any more";
  }
  return {};
}

// What is decided now needs no second decision.
Status settle(const SandboxRecord& sandbox, Settled& settled, const MergeReport& report) {
  bool changed = false;
  for (const MergeItem& item : report.items) {
    if (item.outcome != Outcome::kTaken && item.outcome != Outcome::kSame &&
        item.outcome != Outcome::kKeptOurs) {
      continue;
    }
    settled.paths[item.change.path] = item.change.theirs;
    changed = true;
  }
  return changed ? settled.save(sandbox) : Status();
}

}  // namespace

std::string_view to_text(Outcome outcome) {
  constexpr std::array<std::string_view, 6> kTexts = {"taken",        "same",     "kept ours",
                                                      "not selected", "conflict", "refused"};
  return kTexts[static_cast<std::size_t>(outcome)];
}

std::size_t MergeReport::count(Outcome outcome) const {
  return static_cast<std::size_t>(std::count_if(
      items.begin(), items.end(), [&](const MergeItem& item) { return item.outcome == outcome; }));
}

bool MergeReport::has_conflicts() const {
  return count(Outcome::kConflict) + count(Outcome::kRefused) > 0 ||
         (strict_reads && !stale_reads.empty());
}

int MergeReport::exit_status() const {
  if (!failure.empty()) return 125;
  return has_conflicts() ? 1 : 0;
}

Result<MergeReport> merge_sandbox(const SandboxRecord& sandbox, const MergeOptions& options) {
  TRY_ASSIGN(ReviewSession session, ReviewSession::open(sandbox));
  TRY_ASSIGN(ChangeSet set, session.collect(sandbox));
  TRY_ASSIGN(Placement placement, ReviewSession::placement(sandbox));

  MergeReport report;
  report.strict_reads = options.strict_reads;
  report.settled = set.settled;
  TRY_ASSIGN(report.stale_reads, find_stale_reads(session, placement, set));
  TRY_ASSIGN(report.items, decide_merge(session.view, set, options));
  report.omissions = std::move(set.omissions);
  report.ignored = std::move(set.ignored);
  if (report.has_conflicts() || options.dry_run) return report;

  TRY(write(session, options, report));
  if (!report.failure.empty()) return report;
  if (const Status saved = settle(sandbox, session.settled, report); !saved.ok()) {
    report.warning = "merged, but not recorded as merged: " + saved.error().message();
  }
  return report;
}

}  // namespace cofferdam::orchestrator::changes
