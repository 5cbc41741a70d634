#include "orchestrator/changes/plan_json.h"

#include <algorithm>
#include <array>

#include "common/os/tree_paths.h"
#include "orchestrator/changes/branch_move.h"
#include "orchestrator/changes/change_json.h"
#include "orchestrator/changes/forbidden_names.h"

namespace cofferdam::orchestrator::changes {
namespace {

constexpr std::array<std::string_view, 5> kActs = {"remove", "exchange", "create", "mode", "tree"};

Result<Step> step_from_json(const Json& row) {
  Step step;
  TRY_ASSIGN(step.path, path_from_json(row));
  if (step.path.empty() || !os::is_tree_path(step.path) || dot_git_prefix(step.path).has_value()) {
    return Error("a merge's plan: not a path that a merge writes");
  }
  const std::string act = row.value("act", "");
  const auto found = std::find(kActs.begin(), kActs.end(), act);
  if (found == kActs.end()) return Error("a merge's plan: unknown act");
  step.act = static_cast<Step::Act>(found - kActs.begin());
  TRY_ASSIGN(step.before, state_from_json(row.value("before", Json())));
  TRY_ASSIGN(step.after, state_from_json(row.value("after", Json())));
  step.staged_inode = row.value("inode", std::uint64_t{0});
  return step;
}

}  // namespace

Json to_json(const TransactionPlan& plan) {
  Json steps = Json::array();
  for (const Step& step : plan.steps) {
    Json row = path_to_json(step.path);
    row["act"] = kActs[static_cast<std::size_t>(step.act)];
    row["before"] = to_json(step.before);
    row["after"] = to_json(step.after);
    if (step.act == Step::Act::kExchange) row["inode"] = step.staged_inode;
    steps.push_back(std::move(row));
  }
  Json settled = Json::array();
  for (const Settlement& settlement : plan.settled) {
    Json row = path_to_json(settlement.path);
    if (settlement.before.has_value()) row["before"] = to_json(*settlement.before);
    row["after"] = to_json(settlement.after);
    settled.push_back(std::move(row));
  }
  Json json = {{"version", 1},
               {"origin", plan.origin == Position::kBefore ? "before" : "after"},
               {"steps", std::move(steps)},
               {"settled", std::move(settled)}};
  if (plan.branch != nullptr) json["branch"] = to_json(*plan.branch);
  return json;
}

Result<TransactionPlan> plan_from_json(const Json& json) {
  if (!json.is_object() || json.value("version", 0) != 1 || !json.contains("steps") ||
      !json["steps"].is_array() || !json.contains("settled") || !json["settled"].is_array()) {
    return Error("a merge's plan: not version 1");
  }
  TransactionPlan plan;
  plan.origin = json.value("origin", "") == "after" ? Position::kAfter : Position::kBefore;
  plan.steps.reserve(json["steps"].size());
  for (const Json& row : json["steps"]) {
    TRY_ASSIGN(Step step, step_from_json(row));
    plan.steps.push_back(std::move(step));
  }
  for (const Json& row : json["settled"]) {
    Settlement settlement;
    TRY_ASSIGN(settlement.path, path_from_json(row));
    if (row.contains("before")) {
      TRY_ASSIGN(settlement.before, state_from_json(row["before"]));
    }
    TRY_ASSIGN(settlement.after, state_from_json(row.value("after", Json())));
    plan.settled.push_back(std::move(settlement));
  }
  if (json.contains("branch")) {
    TRY_ASSIGN(BranchMove move, branch_move_from_json(json["branch"]));
    plan.branch = std::make_shared<const BranchMove>(std::move(move));
  }
  return plan;
}

}  // namespace cofferdam::orchestrator::changes
