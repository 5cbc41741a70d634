// RiskTable: which changes make something run once they are home (policies/risk.json), and the
// built-in rules that need more than a name. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/changes/changes.h"

namespace cofferdam::orchestrator::changes {

extern const char* const kRiskRulesJson;

// Whether a link at `path` with this text leads out of the workspace, or into its .git: absolute,
// or by too many "..". Decided by the text alone.
bool link_escapes(std::string_view path, std::string_view text);

class RiskTable final {
 public:
  // An unknown key or level is an error.
  static Result<RiskTable> parse(std::string_view json);
  static Result<RiskTable> built_in() { return parse(kRiskRulesJson); }

  // `link_text` is that of theirs when it is a link.
  Risk assess(const Change& change, std::string_view link_text) const;

 private:
  struct Rule {
    std::string id;
    RiskLevel level = RiskLevel::kListed;
    std::string reason;
    std::vector<std::string> names;  // lower case
    std::vector<std::string> below;  // lower case
    std::vector<std::string> paths;  // lower case
  };
  static bool matches(const Rule& rule, std::string_view path);

  std::vector<Rule> rules_;
};

}  // namespace cofferdam::orchestrator::changes
