#include <algorithm>

#include "common/base/escape.h"
#include "orchestrator/changes/merge.h"

namespace cofferdam::orchestrator::changes {
namespace {

constexpr std::size_t kMaxLines = 50;

std::string shown(std::string_view path) {
  return escape_for_terminal(path);
}

std::string plural(std::uint64_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

bool decided(Outcome outcome) {
  return outcome == Outcome::kConflict || outcome == Outcome::kRefused;
}

std::string how(const MergeItem& item) {
  if (!item.merged) return {};
  return item.markers ? "with conflict markers: " : "merged by lines: ";
}

// "  M path  why", for each item with this outcome.
void list(std::string& text, const MergeReport& report, Outcome outcome, const std::string& title,
          bool all) {
  const std::size_t count = report.count(outcome);
  if (count == 0) return;
  text += title + "\n";
  std::size_t lines = 0;
  std::vector<const MergeItem*> items;
  for (const MergeItem& item : report.items) {
    if (item.outcome == outcome) items.push_back(&item);
  }
  std::stable_sort(items.begin(), items.end(), [](const MergeItem* a, const MergeItem* b) {
    return a->change.risk.level > b->change.risk.level;
  });
  for (const MergeItem* item : items) {
    if (++lines > kMaxLines && !all && !decided(outcome)) {
      text += "  … and " + std::to_string(count - kMaxLines) + " more\n";
      return;
    }
    text += "  ";
    text += status_letter(item->change.kind);
    text += " " + shown(item->change.path);
    if (item->change.bulk_entries > 0) {
      text += " (" + plural(item->change.bulk_entries, "object") + ", " +
              std::to_string(item->change.bulk_bytes) + " bytes, ignored by your rules)";
    }
    if (!item->why.empty()) {
      text += ": " + how(*item) + shown(item->why);
    }
    if (decided(outcome)) {
      text += "\n";
      continue;
    }
    if (item->change.risk.level != RiskLevel::kNone) {
      text += "  (look at it: " + shown(item->change.risk.reason) + ")";
    }
    text += "\n";
  }
}

void list_left_out(std::string& text, const MergeReport& report) {
  for (const Omission& omission : report.omissions) {
    text += "  left out: " + shown(omission.path) + ": " + shown(omission.detail) + " (" +
            omission.reason +
            (omission.entries > 1 ? ", " + plural(omission.entries, "object") : "") + ")\n";
  }
  for (const Ignored& ignored : report.ignored) {
    text += "  ignored by your rules: " + shown(ignored.path) + " (" +
            plural(ignored.entries, "object") + ", --ignored takes it home)\n";
  }
}

std::string verdict(const MergeReport& report, bool dry_run) {
  const std::size_t taken = report.count(Outcome::kTaken);
  if (!report.failure.empty()) {
    std::string text = "merge failed: " + shown(report.failure) + "\n";
    if (report.stuck.empty()) return text + "everything was undone; the workspace is as it was\n";
    for (const StuckStep& step : report.stuck) {
      text += "  left as it is: " + shown(step.path) + ": " + shown(step.why) + "\n";
    }
    return text + "everything else was undone; what was there before lies in " +
           shown(report.kept.string()) + "\n";
  }
  if (report.has_conflicts()) return "nothing was written\n";
  const bool moved = report.commits.has_value() && report.commits->move.has_value();
  if (taken == 0 && !moved) {
    std::string text = "nothing to do";
    if (report.settled > 0) text += ": " + plural(report.settled, "change") + " settled before";
    return text + "\n";
  }
  return (dry_run ? "would merge " : "merged ") + plural(taken, "change") + "\n";
}

}  // namespace

std::string describe(const MergeReport& report, bool dry_run) {
  std::string text;
  list(text, report, Outcome::kConflict, "conflicts:", true);
  list(text, report, Outcome::kRefused, "refused:", true);
  list(text, report, Outcome::kTaken,
       report.has_conflicts() ? "without conflict:"
       : dry_run              ? "to be taken:"
                              : "changes:",
       dry_run);
  list(text, report, Outcome::kKeptOurs, "left as they are (--take ours):", dry_run);
  if (!report.stale_reads.empty()) {
    text += report.strict_reads ? "stale reads (conflicts, by --strict-reads):\n"
                                : "stale reads (the sandbox saw an older version):\n";
    std::size_t lines = 0;
    for (const StaleRead& stale : report.stale_reads) {
      if (++lines > kMaxLines) {
        text += "  … and " + std::to_string(report.stale_reads.size() - kMaxLines) + " more\n";
        break;
      }
      text += "  " + shown(stale.path) + ": " + stale.why + "\n";
    }
  }
  list_left_out(text, report);
  if (report.commits.has_value()) text += describe(*report.commits, dry_run);
  const std::size_t same = report.count(Outcome::kSame);
  if (same > 0) text += plural(same, "path") + " already as the sandbox has it\n";
  const std::size_t rest = report.count(Outcome::kNotSelected);
  if (rest > 0) text += plural(rest, "change") + " not selected\n";
  if (!report.warning.empty()) text += "warning: " + shown(report.warning) + "\n";
  return text + verdict(report, dry_run);
}

}  // namespace cofferdam::orchestrator::changes
