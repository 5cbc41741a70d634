// Budgets: how much one rule, or the whole sandbox, may use of the network. Values; pure.
//
// The same keys in the manifest (`network.budgets`, `budgets` of a rule) and in egress.json. What
// is not said is not limited.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "common/base/json_text.h"
#include "common/base/result.h"

namespace cofferdam::policy {

struct Budget {
  std::optional<std::uint64_t> bytes_up;                // from the workload to servers, in all
  std::optional<std::uint64_t> bytes_down;              // and back
  std::optional<std::uint64_t> connections;             // at once
  std::optional<std::uint64_t> connections_per_second;  // new ones
  std::optional<std::uint64_t> names_per_minute;  // different names that a wildcard lets through
  bool operator==(const Budget&) const = default;
};

// `where` begins each error: "policy: r:1". Unknown keys are errors, and so is a 0: what may not be
// used at all is not allowed in the first place.
Result<Budget> budget_from_json(const Json& json, std::string_view where);
// Only what is limited.
Json to_json(const Budget& budget);

}  // namespace cofferdam::policy
