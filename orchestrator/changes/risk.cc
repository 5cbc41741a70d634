#include "orchestrator/changes/risk.h"

#include <algorithm>
#include <set>

#include "common/base/json_text.h"
#include "common/os/tree_paths.h"
#include "orchestrator/changes/forbidden_names.h"

namespace cofferdam::orchestrator::changes {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// At most one '*', which stands for any bytes.
bool name_matches(std::string_view pattern, std::string_view name) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  const std::string_view head = pattern.substr(0, star);
  const std::string_view tail = pattern.substr(star + 1);
  return name.size() >= head.size() + tail.size() && name.starts_with(head) && name.ends_with(tail);
}

Result<std::vector<std::string>> strings(const Json& rule, const char* key) {
  std::vector<std::string> out;
  if (!rule.contains(key)) return out;
  if (!rule[key].is_array()) return Error(std::string("risk table: ") + key + " is not a list");
  for (const Json& entry : rule[key]) {
    if (!entry.is_string()) return Error(std::string("risk table: ") + key + " holds no text");
    out.push_back(lower(entry.get<std::string>()));
  }
  return out;
}

}  // namespace

bool link_escapes(std::string_view path, std::string_view text) {
  if (text.starts_with('/')) return true;
  // A link among the components is judged itself, but a ".." after a name goes up from wherever
  // that name leads: through "d -> ." it leaves the workspace. So ".." may only begin a link's
  // text.
  bool named = false;
  std::ptrdiff_t depth = std::count(path.begin(), path.end(), '/');
  while (true) {
    const std::size_t slash = text.find('/');
    const std::string_view component = text.substr(0, slash);
    if (component == "..") {
      if (named || --depth < 0) return true;
    } else if (!component.empty() && component != ".") {
      if (is_dot_git(component)) return true;
      named = true;
    }
    if (slash == std::string_view::npos) return false;
    text.remove_prefix(slash + 1);
  }
}

Result<RiskTable> RiskTable::parse(std::string_view json) {
  TRY_ASSIGN(const Json table, parse_json(json).context("risk table"));
  if (!table.is_object() || table.value("version", 0) != 1 || !table.contains("rules") ||
      !table["rules"].is_array()) {
    return Error("risk table: not version 1");
  }
  static const std::set<std::string> kKeys = {"id", "level", "reason", "name", "below", "path"};
  RiskTable result;
  for (const Json& row : table["rules"]) {
    if (!row.is_object()) return Error("risk table: a rule is not an object");
    for (const auto& [key, value] : row.items()) {
      if (!kKeys.contains(key)) return Error("risk table: unknown key " + key);
    }
    Rule rule;
    rule.id = row.value("id", "");
    rule.reason = row.value("reason", "");
    const std::string level = row.value("level", "");
    if (level != "listed" && level != "needs_allowance") {
      return Error("risk table: rule " + rule.id + " has no level");
    }
    rule.level = level == "listed" ? RiskLevel::kListed : RiskLevel::kNeedsAllowance;
    TRY_ASSIGN(rule.names, strings(row, "name"));
    TRY_ASSIGN(rule.below, strings(row, "below"));
    TRY_ASSIGN(rule.paths, strings(row, "path"));
    if (rule.id.empty() || rule.reason.empty())
      return Error("risk table: a rule without id or reason");
    result.rules_.push_back(std::move(rule));
  }
  return result;
}

bool RiskTable::matches(const Rule& rule, std::string_view path) {
  const std::string_view name = os::leaf_of(path);
  for (const std::string& pattern : rule.names) {
    if (name_matches(pattern, name)) return true;
  }
  const std::string wrapped = "/" + std::string(path);
  for (const std::string& directory : rule.below) {
    if (wrapped.find("/" + directory + "/") != std::string::npos) return true;
    if (wrapped.ends_with("/" + directory)) return true;
  }
  for (const std::string& suffix : rule.paths) {
    if (wrapped.ends_with("/" + suffix)) return true;
  }
  return false;
}

Risk RiskTable::assess(const Change& change, std::string_view link_text) const {
  Risk worst;
  const auto consider = [&](RiskLevel level, const std::string& rule, const std::string& reason) {
    if (level > worst.level) worst = {level, rule, reason};
  };
  // Trailing dots, spaces and ignorable code points are no way around a name.
  const std::string path = folded_path(change.path);
  for (const Rule& rule : rules_) {
    if (!matches(rule, path)) continue;
    // What vanishes runs nothing; it is listed all the same.
    consider(change.theirs.absent() ? RiskLevel::kListed : rule.level, rule.id, rule.reason);
  }
  if (change.theirs.kind == layer::Kind::kSymlink && link_escapes(change.path, link_text)) {
    consider(RiskLevel::kNeedsAllowance, "link-out",
             "the link leads out of the workspace, or into its .git");
  }
  if (change.theirs.kind == layer::Kind::kSymlink) {
    consider(RiskLevel::kListed, "link", "it is a link: what is written to it lands elsewhere");
  }
  if (change.dropped_set_id) {
    consider(RiskLevel::kListed, "set-id", "its set-user-id or set-group-id bit is left behind");
  }
  if (change.theirs.kind == layer::Kind::kFile && (change.theirs.mode & 0111U) != 0 &&
      (change.base.kind != layer::Kind::kFile || (change.base.mode & 0111U) == 0)) {
    consider(RiskLevel::kListed, "executable", "it becomes executable");
  }
  return worst;
}

}  // namespace cofferdam::orchestrator::changes
