// A transaction's plan as JSON, and back: plan.json of a merge's journal.
#pragma once

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "orchestrator/changes/transaction.h"

namespace cofferdam::orchestrator::changes {

Json to_json(const TransactionPlan& plan);
Result<TransactionPlan> plan_from_json(const Json& json);

}  // namespace cofferdam::orchestrator::changes
