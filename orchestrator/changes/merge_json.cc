#include <string>

#include "common/base/escape.h"
#include "orchestrator/changes/change_json.h"
#include "orchestrator/changes/merge.h"

namespace cofferdam::orchestrator::changes {
namespace {

Json row_of(const MergeItem& item) {
  Json row = to_json(item.change);
  row["ours"] = to_json(item.ours);
  row["outcome"] = to_text(item.outcome);
  if (!item.why.empty()) row["why"] = to_json_text(item.why);
  if (item.outcome != Outcome::kTaken) return row;
  row["result"] = to_json(item.result);
  if (item.merged) row["merged"] = item.markers ? "with_markers" : "by_lines";
  return row;
}

}  // namespace

Json to_json(const MergeReport& report, bool dry_run) {
  Json changes = Json::array();
  for (const MergeItem& item : report.items) changes.push_back(row_of(item));
  Json stale = Json::array();
  for (const StaleRead& read : report.stale_reads) {
    Json row = path_to_json(read.path);
    row["why"] = read.why;
    stale.push_back(std::move(row));
  }
  Json omitted = Json::array();
  for (const Omission& omission : report.omissions) omitted.push_back(to_json(omission));
  Json ignored = Json::array();
  for (const Ignored& row : report.ignored) ignored.push_back(to_json(row));
  Json stuck = Json::array();
  for (const StuckStep& step : report.stuck) {
    Json row = path_to_json(step.path);
    row["why"] = to_json_text(step.why);
    stuck.push_back(std::move(row));
  }
  Json json = {{"version", 1},
               {"dry_run", dry_run},
               {"written", report.written},
               {"status", report.exit_status()},
               {"changes", std::move(changes)},
               {"stale_reads", std::move(stale)},
               {"strict_reads", report.strict_reads},
               {"omitted", std::move(omitted)},
               {"ignored", std::move(ignored)},
               {"settled", report.settled},
               {"left_as_they_are", std::move(stuck)}};
  if (report.commits.has_value()) json["commits"] = to_json(*report.commits);
  if (!report.failure.empty()) json["failure"] = to_json_text(report.failure);
  if (!report.kept.empty()) json["kept"] = to_json_text(report.kept.string());
  if (!report.warning.empty()) json["warning"] = to_json_text(report.warning);
  return json;
}

}  // namespace cofferdam::orchestrator::changes
