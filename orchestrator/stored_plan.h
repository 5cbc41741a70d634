// The plan of a sandbox as it is kept in its directory (`plan.json`, for the owner alone), so that
// an ended sandbox's namespaces can be made again with the rights that it had, never with others.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "orchestrator/plan.h"
#include "orchestrator/sandbox_store.h"

namespace cofferdam::orchestrator {

// Pure. The policies are not in it: fs.json and egress.json are files of their own, which a grant
// changes. Nor are the values of the variables `secret`, only their names.
Json stored_plan(const Plan& plan, const std::set<std::string>& secret);

struct RestoredPlan {
  Plan plan;  // without policies; ids.range_base is for the caller to choose anew
  std::vector<std::string> missing_variables;  // whose values were not kept
};
Result<RestoredPlan> parse_stored_plan(const Json& json);

Status save_plan(const SandboxRecord& record, const Plan& plan,
                 const std::set<std::string>& secret);
// With the policies as they are now.
Result<RestoredPlan> load_plan(const SandboxRecord& record);

}  // namespace cofferdam::orchestrator
