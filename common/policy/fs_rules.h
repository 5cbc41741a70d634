// FsRules: what a workload may see and change by path. Pure.
//
// Rules are in gitignore syntax (gitignore(5), "PATTERN FORMAT") without "!": the last rule that
// matches a path or one of its parents wins, and nothing below a hidden directory is visible,
// whatever later rules say. Paths are bytes relative to a mount's root, without a leading slash;
// "" is the root itself, which no rule matches.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "common/policy/reason.h"

namespace cofferdam::policy {

enum class FsAction : std::uint8_t {
  kNone,      // no rule matches: visible, changes are free
  kHide,      // does not exist; must not be created (reason `hidden`)
  kOutside,   // the same, with reason `outside`
  kReadonly,  // visible; every change is refused (reason `readonly`)
  kWritable,  // a rule says so: lifts an earlier `hide` or `readonly`
};

std::string_view to_text(FsAction action);

struct FsDecision {
  FsAction action = FsAction::kOutside;
  std::string_view rule = "malformed";  // the rule's id; "" without one; lives as long as the rules

  bool visible() const { return action != FsAction::kHide && action != FsAction::kOutside; }
  bool changeable() const { return action == FsAction::kNone || action == FsAction::kWritable; }
  // The reason of a refusal; kAllowed where nothing is refused.
  Reason reason() const;
};

class FsRules final {
 public:
  // `case_insensitive`: the names of the file system below fold ASCII case, so rules do too.
  enum class Names : std::uint8_t { kExact, kFoldCase };

  FsRules() = default;

  // A JSON array of {"id", "action", "pattern"}. Unknown keys, unknown actions, empty ids, patterns
  // that could never match (an open bracket, "..", an empty component) are errors.
  static Result<FsRules> parse(const Json& rules, Names names = Names::kExact);

  // `is_dir`: what the path is, or would become. A path with an empty, "." or ".." component, a
  // leading slash or a NUL is no path of a mount: outside, rule "malformed".
  FsDecision decide(std::string_view path, bool is_dir) const;

  // Whether a rule that depends on more than an object's own name could match something strictly
  // below `path`. Where this is false, moving a tree to or from `path` changes no decision about
  // names below it that are allowed now.
  bool place_matters_below(std::string_view path) const;

  bool empty() const { return rules_.empty(); }

 private:
  struct Rule {
    std::string id;
    FsAction action = FsAction::kHide;
    std::vector<std::string> components;  // of the pattern; "**" stands for any number
    bool anchored = false;                // matched against the whole path, else the last name only
    bool directories_only = false;
  };

  bool matches(const Rule& rule, const std::vector<std::string_view>& path, std::size_t length,
               bool is_dir) const;
  // The highest index of a rule that matches the first `length` names, or -1.
  int last_match(const std::vector<std::string_view>& path, std::size_t length, bool is_dir) const;

  std::vector<Rule> rules_;
  // Rules that are one literal name, by that name; the others by index.
  std::unordered_map<std::string, std::vector<int>> by_name_;
  std::vector<int> others_;
  Names names_ = Names::kExact;
};

}  // namespace cofferdam::policy
