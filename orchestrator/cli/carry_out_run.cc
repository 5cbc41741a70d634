#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "common/base/escape.h"
#include "common/os/terminal.h"
#include "orchestrator/changes/changes.h"
#include "orchestrator/changes/journal.h"
#include "orchestrator/cli/phases.h"
#include "orchestrator/cli/review.h"
#include "orchestrator/cli/run.h"
#include "orchestrator/cli/supervised.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/engine/operation_messages.h"
#include "orchestrator/event_reader.h"
#include "orchestrator/summary.h"

namespace cofferdam::orchestrator::cli {
namespace {

struct Review {
  Summary summary;
  std::size_t changes = 0;
  std::uint64_t ignored = 0;  // by the user's own ignore rules
  std::size_t omitted = 0;    // never exported nor merged: .git, special files, …
  std::string changes_error;
  std::vector<std::string> risks;  // "PATH: why it wants a look", worst first
};

Review review(const OwnedSandbox& sandbox, const Plan& plan) {
  Review out;
  const auto read = for_each_event(sandbox.record.events(), 0,
                                   [&](const Json& event) { out.summary.add(event); });
  if (!read.ok()) note("the events cannot be read: " + read.error().message());
  if (!plan.mounts.front().layer) return out;  // read only: nothing can have changed
  const auto changes = changes::compute_changes(sandbox.record);
  if (changes.ok()) {
    out.changes = changes->changes.size();
    out.ignored = changes->ignored_entries();
    out.omitted = changes->omissions.size();
    for (const std::size_t i : changes->by_risk()) {
      const changes::Change& change = changes->changes[i];
      if (change.risk.level == changes::RiskLevel::kNone) break;
      const bool refused = change.risk.level == changes::RiskLevel::kNeedsAllowance;
      out.risks.push_back(change.path + ": " + change.risk.reason +
                          (refused ? " (merge wants --allow-risky)" : ""));
    }
  } else {
    out.changes_error = changes.error().message();
  }
  return out;
}

std::string left_out_text(const Review& review) {
  std::string text;
  if (review.ignored > 0) text += std::to_string(review.ignored) + " ignored by your rules";
  if (review.omitted > 0) {
    text += (text.empty() ? "" : ", ") + std::to_string(review.omitted) + " never taken home";
  }
  return text.empty() ? text : " (and " + text + ")";
}

void print_summary(const OwnedSandbox& sandbox, const RunOutcome& outcome, const Review& review) {
  const std::string& id = sandbox.record.id;
  if (!outcome.message.empty()) (void)fail(outcome.message);
  note("sandbox " + sandbox.record.name + (sandbox.record.name == id ? "" : " (" + id + ")") +
       ": " + std::string(to_text(outcome.ending)) + ", status " +
       std::to_string(outcome.exit_status()));
  for (const std::string& line : review.summary.lines()) note(line);
  if (!review.changes_error.empty()) {
    note("what it changed cannot be told: " + review.changes_error);
  } else if (review.changes == 0) {
    note("no changes" + left_out_text(review));
  } else {
    note(std::to_string(review.changes) + (review.changes == 1 ? " change" : " changes") +
         left_out_text(review) + ", not in the workspace yet: cofferdam diff " + id +
         ", cofferdam merge " + id + ", cofferdam export " + id);
  }
}

void print_summary_json(const OwnedSandbox& sandbox, const RunOutcome& outcome,
                        const Review& review) {
  Json json = review.summary.to_json();
  json["sandbox"] = sandbox.record.id;
  json["name"] = sandbox.record.name;
  json["ending"] = to_text(outcome.ending);
  json["exit_status"] = outcome.exit_status();
  json["message"] = outcome.message;
  json["ignored"] = review.ignored;
  json["omitted"] = review.omitted;
  json["changes"] = review.changes_error.empty() ? Json(review.changes) : Json();
  std::fputs((printable_json(json, -1) + "\n").c_str(), stderr);
}

// What the workload wrote went to the terminal as it was: an unfinished sequence, hidden text or
// the other screen would swallow what is said now. CAN and ST end a sequence, DECSTR and SGR 0 give
// back visible text, margins and the cursor, the rest the first character set and screen.
void settle_terminal() {
  const char* kind = std::getenv("TERM");
  if (kind == nullptr || std::string_view(kind) == "dumb" || !os::is_terminal(STDERR_FILENO)) {
    return;
  }
  std::fputs("\x18\x1b\\\x1b[!p\x1b[0m\x0f\x1b(B\x1b[?47l\x1b[?25h", stderr);
}

std::string merge_mode(const RunOptions& options) {
  if (!options.merge.empty()) return options.merge;
  const bool terminal = os::is_terminal(STDIN_FILENO) && os::is_terminal(STDERR_FILENO);
  return (options.interactive || options.terminal) && terminal ? "ask" : "never";
}

// The workload has ended: nothing of it can write to the terminal any more. Nor may what was typed
// while it ran, as an answer to a question of its own, be taken for the answer to this one.
bool ask_for_merge(const SandboxRecord& sandbox, std::size_t changes,
                   const std::vector<std::string>& risks) {
  if (!os::is_terminal(STDIN_FILENO)) {
    note("--merge=ask, but stdin is no terminal: nothing was merged");
    return false;
  }
  constexpr std::size_t kMaxShown = 20;
  for (std::size_t i = 0; i < risks.size() && i < kMaxShown; ++i) note_of(sandbox, "! " + risks[i]);
  if (risks.size() > kMaxShown) {
    note("! … and " + std::to_string(risks.size() - kMaxShown) + " more: cofferdam diff");
  }
  const std::string prompt = "cofferdam: merge " + std::to_string(changes) +
                             (changes == 1 ? " change" : " changes") + " now? [y/N] ";
  os::discard_typed_ahead(STDIN_FILENO);
  std::fputs(prompt.c_str(), stderr);
  std::array<char, 16> answer{};
  if (std::fgets(answer.data(), answer.size(), stdin) == nullptr) return false;
  return answer[0] == 'y' || answer[0] == 'Y';
}

// The exit status after merging as asked; 1 only where the workload itself ended with 0.
int merge(const Context& context, const RunOptions& options, const SandboxRecord& record,
          std::size_t* changes, const std::vector<std::string>& risks, int status) {
  const std::string mode = merge_mode(options);
  if (mode == "never" || *changes == 0) return status;
  if (mode == "ask" && options.json) settle_terminal();
  if (mode == "ask" && !ask_for_merge(record, *changes, risks)) return status;
  const int merged = merge_after_run(context, record);
  if (const auto left = count_changes(record); left.ok()) *changes = *left;
  return status != 0 ? status : merged;
}

}  // namespace

int carry_out_run(const Context& context, const RunOptions& options, const SandboxStore& store,
                  const PreparedRun& run) {
  for (const PlanLine& line : run.plan.lines) {
    if (line.topic == "note") note(line.text);
  }
  auto created = create_sandbox(store, run);
  if (!created.ok()) return fail(created.error());
  OwnedSandbox sandbox = std::move(created).value();
  const RunOutcome outcome = run_with_phases(&sandbox, run);
  Review reviewed = review(sandbox, run.plan);
  if (options.json) {
    print_summary_json(sandbox, outcome, reviewed);
    if (!outcome.message.empty()) (void)fail(outcome.message);
  } else {
    settle_terminal();
    print_summary(sandbox, outcome, reviewed);
  }
  const int status = merge(context, options, sandbox.record, &reviewed.changes, reviewed.risks,
                           outcome.exit_status());
  if (!options.remove) return status;
  if (reviewed.changes > 0 || !reviewed.changes_error.empty()) {
    note("--rm: kept, because it has unmerged changes");
    return status;
  }
  if (changes::Journal::has_active(sandbox.record)) {
    note("--rm: kept, because its merge is not brought to an end yet");
    return status;
  }
  if (Status removed = store.remove(std::move(sandbox)); !removed.ok())
    return fail(removed.error());
  return status;
}

}  // namespace cofferdam::orchestrator::cli
