// From what sandboxes did to the smallest rules that allow it. Pure.
//
// What is read was written about a workload and holds names that it chose: every rule is made anew
// by the rule parser, and what that does not take is told and left out. The same events give the
// same rules, in the same order.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json_text.h"
#include "common/policy/egress_rule.h"

namespace cofferdam::orchestrator {

struct LearnedRules {
  std::vector<std::string> rules;  // not covered by what is there; as short as the grammar allows
  std::vector<std::string> notes;  // for people, not escaped yet
};

class RuleLearner final {
 public:
  // Below one parent from so many names on a wildcard is written (asked for) or offered.
  static constexpr std::size_t kManyNames = 3;

  // egress.json of the sandbox whose events follow: ranges that its rules opened stay open.
  void begin_sandbox(const Json& egress_policy);
  // Any event; only allowed connections and requests count, folded ones too.
  void add(const Json& event);
  // `existing`: rules that are there already; texts that parse.
  LearnedRules result(const std::vector<std::string>& existing, bool wildcards) const;

 private:
  void add_connection(const Json& event);

  std::map<std::string, policy::EgressRule, std::less<>> by_id_;  // of the present sandbox
  // By a key that sorts names below one parent together.
  std::map<std::string, policy::EgressRule> learned_;
  std::map<std::string, std::uint64_t> refused_;  // what could not be made a rule, with its number
};

// The shortest text that means the same.
std::string short_text(const policy::EgressRule& rule);

}  // namespace cofferdam::orchestrator
