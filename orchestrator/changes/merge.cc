#include "orchestrator/changes/merge.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "common/os/file_lock.h"
#include "common/os/tree_paths.h"
#include "orchestrator/changes/merge_plan.h"
#include "orchestrator/changes/recovery.h"
#include "orchestrator/changes/session.h"
#include "orchestrator/changes/staging.h"
#include "orchestrator/changes/stale_reads.h"
#include "orchestrator/changes/three_way.h"

namespace cofferdam::orchestrator::changes {
namespace {

using layer::Kind;

constexpr std::uint32_t kUnfilled = 0700;  // the mode of a directory until all is in it

bool makes_object(const MergeItem& item) {
  if (item.result.absent()) return false;
  // A directory that stays one only changes its mode.
  return !(item.result.kind == Kind::kDirectory && item.ours.kind == Kind::kDirectory);
}

// It leaves as a removal first: not every file system can exchange a directory (transaction.h).
bool replaces_directory(const MergeItem& item) {
  return item.ours.kind == Kind::kDirectory && makes_object(item);
}

// The steps of a merge, and of each the item that it is about.
struct Steps {
  TransactionPlan plan;
  std::vector<const MergeItem*> items;

  void add(Step::Act act, const MergeItem& item, ObjectState before, ObjectState after) {
    plan.steps.push_back({act, item.change.path, before, after, 0});
    items.push_back(&item);
  }
};

// A directory that stays and becomes writable: before anything in it is written.
bool opens_up(const MergeItem& item) {
  return item.ours.kind == Kind::kDirectory && item.result.kind == Kind::kDirectory &&
         (item.ours.mode & 0200U) == 0 && (item.result.mode & 0200U) != 0;
}

Steps steps_of(const std::vector<const MergeItem*>& taken) {
  Steps steps;
  for (const MergeItem* item : taken) {
    if (opens_up(*item)) steps.add(Step::Act::kMode, *item, item->ours, item->result);
  }
  // Children go before their parents ...
  for (auto item = taken.rbegin(); item != taken.rend(); ++item) {
    const bool goes = (*item)->result.absent() || replaces_directory(**item);
    if (goes) steps.add(Step::Act::kRemove, **item, (*item)->ours, {});
  }
  // ... and come after them.
  for (const MergeItem* item : taken) {
    if (!makes_object(*item)) continue;
    if (item->change.bulk_entries > 0) {
      steps.add(Step::Act::kTree, *item, item->ours, item->result);
      continue;
    }
    ObjectState made = item->result;
    if (made.kind == Kind::kDirectory) made.mode = kUnfilled;
    const bool vacant = item->ours.absent() || replaces_directory(*item);
    steps.add(vacant ? Step::Act::kCreate : Step::Act::kExchange, *item,
              vacant ? ObjectState{} : item->ours, made);
  }
  for (auto item = taken.rbegin(); item != taken.rend(); ++item) {
    if ((*item)->result.kind != Kind::kDirectory || (*item)->change.bulk_entries > 0) continue;
    ObjectState before = (*item)->result;
    before.mode = makes_object(**item) ? kUnfilled : (*item)->ours.mode;
    if (before.same_as((*item)->result) || opens_up(**item)) continue;
    steps.add(Step::Act::kMode, **item, before, (*item)->result);
  }
  return steps;
}

std::uint64_t entries_of(const MergeItem& item) {
  return std::max<std::uint64_t>(item.change.bulk_entries, 1);
}

Status stage(const ReviewSession& session, const Journal& journal, Steps& steps,
             const MergeOptions& options) {
  const BeforeAct& before_act = options.before_act;
  Staging staging(session.view, journal.objects());
  std::uint64_t total = 0;
  for (const MergeItem* item : steps.items) total += entries_of(*item);
  std::atomic<std::uint64_t> done = 0;
  const auto more = [&](std::uint64_t entries) {
    const std::uint64_t now = done.fetch_add(entries) + entries;
    if (options.progress) options.progress(now, total);
  };
  for (std::size_t i = 0; i < steps.items.size(); ++i) {
    Step& step = steps.plan.steps[i];
    const MergeItem& item = *steps.items[i];
    if (step.act == Step::Act::kTree) {
      if (before_act) TRY(before_act("stage", step.path));
      TRY(staging.make_tree(item, std::to_string(i), more).context(step.path));
      TRY_ASSIGN(step.after.sha256, tree_fingerprint(journal.objects(), std::to_string(i)));
      continue;
    }
    if (step.act != Step::Act::kCreate && step.act != Step::Act::kExchange) continue;
    const auto content = [&](const Sink& sink) -> Status {
      if (!item.merged) return session.view.read_theirs(item.change.path, sink);
      TRY_ASSIGN(const TextMerge merged, merge_text(session.view, item.change, item.ours));
      return sink(merged.bytes);
    };
    if (before_act) TRY(before_act("stage", step.path));
    TRY_ASSIGN(step.staged_inode,
               staging.make(item, content, std::to_string(i)).context(step.path));
    more(1);
  }
  return {};
}

// What is decided now needs no second decision.
std::vector<Settlement> settlements(const MergeReport& report, const Settled& settled) {
  std::vector<Settlement> result;
  for (const MergeItem& item : report.items) {
    if (item.outcome != Outcome::kTaken && item.outcome != Outcome::kSame &&
        item.outcome != Outcome::kKeptOurs) {
      continue;
    }
    Settlement settlement{item.change.path, std::nullopt, item.change.theirs};
    const auto known = settled.paths.find(item.change.path);
    if (known != settled.paths.end()) settlement.before = known->second;
    result.push_back(std::move(settlement));
  }
  return result;
}

Status prepare(const ReviewSession& session, const MergeOptions& options, Journal& journal,
               Steps& steps) {
  TRY(stage(session, journal, steps, options));
  TRY(journal.write_plan(steps.plan));
  TRY(journal.sync());
  return journal.set_phase(Phase::kForward);
}

Status write(const SandboxRecord& sandbox, const ReviewSession& session,
             const MergeOptions& options, MergeReport& report) {
  std::vector<const MergeItem*> taken;
  for (const MergeItem& item : report.items) {
    if (item.outcome == Outcome::kTaken) taken.push_back(&item);
  }
  auto settled = settlements(report, session.settled);
  const bool moves = report.commits.has_value() && report.commits->move.has_value();
  if (taken.empty() && !moves) return settle(sandbox, settled, Position::kAfter);
  Steps steps = steps_of(taken);
  if (moves) steps.plan.branch = std::make_shared<const BranchMove>(*report.commits->move);
  steps.plan.settled = std::move(settled);
  const int workspace = session.view.workspace();
  TRY_ASSIGN(Journal journal,
             Journal::begin(sandbox, workspace, options.objects_in_workspace, options.before_act));
  if (const Status prepared = prepare(session, options, journal, steps); !prepared.ok()) {
    report.failure = prepared.error().message();
    if (const Status gone = journal.discard(); !gone.ok()) {
      report.warning = gone.error().message() + ": the next command tries again";
    }
    return {};
  }
  Ending ending =
      bring_to_end(sandbox, journal, steps.plan, workspace, Position::kAfter, options.before_act);
  report.written = ending.position == Position::kAfter;
  report.failure = std::move(ending.failure);
  report.stuck = std::move(ending.stuck);
  report.kept = std::move(ending.kept);
  if (!ending.unfinished.empty()) {
    report.warning = ending.unfinished + ": the next command finishes the records";
  }
  return {};
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
         (strict_reads && !stale_reads.empty()) ||
         (commits.has_value() && !commits->refused.empty());
}

int MergeReport::exit_status() const {
  if (!failure.empty()) return 125;
  return has_conflicts() ? 1 : 0;
}

Result<MergeReport> merge_sandbox(const SandboxRecord& sandbox, const MergeOptions& options) {
  TRY_ASSIGN(
      const Recovery recovered,
      recover_merge(sandbox, options.before_act).context("an earlier merge that was cut short"));
  // Its journal must not be begun anew.
  if (recovered.what == Recovery::What::kBusy) {
    return Error("another merge into this workspace runs");
  }
  TRY_ASSIGN(const ReviewSession session, ReviewSession::open(sandbox));
  TRY_ASSIGN(const auto lock, os::FileLock::try_acquire_directory(session.view.workspace()));
  if (!lock.has_value()) return Error("another merge into this workspace runs");
  TRY_ASSIGN(ChangeSet set,
             options.ignored ? session.collect_with_ignored(options.paths) : session.collect());
  Placement placement = session.placement();

  MergeReport report;
  report.strict_reads = options.strict_reads;
  report.settled = set.settled;
  TRY_ASSIGN(report.stale_reads, find_stale_reads(session, placement, set));
  TRY_ASSIGN(report.items, decide_merge(session.view, set, options));
  report.omissions = std::move(set.omissions);
  report.ignored = std::move(set.ignored);
  if (options.commits.has_value()) {
    const CommitOptions wanted{*options.commits, options.dry_run, options.allow_risky};
    auto commits = bring_commits_home(sandbox, session, placement, wanted);
    if (!commits.ok()) return commits.error().context("commits");
    report.commits = std::move(commits).value();
  }
  if (report.has_conflicts() || options.dry_run) return report;
  TRY(write(sandbox, session, options, report));
  return report;
}

}  // namespace cofferdam::orchestrator::changes
