#include "common/policy/fs_rules.h"

#include <algorithm>
#include <optional>

#include "common/policy/name_glob.h"

namespace cofferdam::policy {
namespace {

constexpr std::string_view kAnyDepth = "**";

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t from = 0;
  for (;;) {
    const std::size_t slash = text.find('/', from);
    if (slash == std::string_view::npos) break;
    parts.push_back(text.substr(from, slash - from));
    from = slash + 1;
  }
  parts.push_back(text.substr(from));
  return parts;
}

std::string fold(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::optional<FsAction> action_from_text(std::string_view text) {
  for (const FsAction a :
       {FsAction::kHide, FsAction::kOutside, FsAction::kReadonly, FsAction::kWritable}) {
    if (to_text(a) == text) return a;
  }
  return std::nullopt;
}

bool is_path(const std::vector<std::string_view>& names) {
  return std::all_of(names.begin(), names.end(), [](std::string_view name) {
    return !name.empty() && name != "." && name != ".." && name.find('\0') == name.npos;
  });
}

// Pattern components against names; `**` takes any number of names, at least one at the end.
bool components_match(const std::vector<std::string>& pattern,
                      const std::vector<std::string_view>& names, std::size_t length,
                      bool fold_case) {
  std::size_t p = 0;
  std::size_t n = 0;
  std::size_t star = std::string::npos;
  std::size_t star_name = 0;
  while (n < length) {
    if (p < pattern.size() && pattern[p] == kAnyDepth) {
      if (p + 1 == pattern.size()) return true;
      star = ++p;
      star_name = n;
      continue;
    }
    if (p < pattern.size() && glob_matches(pattern[p], names[n], fold_case)) {
      ++p;
      ++n;
      continue;
    }
    if (star == std::string::npos) return false;
    p = star;
    n = ++star_name;
  }
  return p == pattern.size();
}

}  // namespace

std::string_view to_text(FsAction action) {
  switch (action) {
    case FsAction::kNone:
      return "none";
    case FsAction::kHide:
      return "hide";
    case FsAction::kOutside:
      return "outside";
    case FsAction::kReadonly:
      return "readonly";
    case FsAction::kWritable:
      break;
  }
  return "writable";
}

Reason FsDecision::reason() const {
  switch (action) {
    case FsAction::kHide:
      return Reason::kHidden;
    case FsAction::kOutside:
      return Reason::kOutside;
    case FsAction::kReadonly:
      return Reason::kReadonly;
    default:
      return Reason::kAllowed;
  }
}

Result<FsRules> FsRules::parse(const Json& rules, Names names) {
  if (!rules.is_array()) return Error("rules: must be an array");
  FsRules out;
  out.names_ = names;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const std::string where = "rules[" + std::to_string(i) + "]";
    const Json& entry = rules[i];
    if (!entry.is_object()) return Error(where + ": must be an object");
    for (const auto& [key, value] : entry.items()) {
      if (key != "id" && key != "action" && key != "pattern") {
        return Error(where + ": unknown key " + key);
      }
      if (!value.is_string()) return Error(where + "." + key + ": must be a string");
    }
    for (const char* key : {"id", "action", "pattern"}) {
      if (!entry.contains(key) || entry[key].get_ref<const std::string&>().empty()) {
        return Error(where + ": " + key + " is missing");
      }
    }
    Rule rule;
    rule.id = entry["id"].get<std::string>();
    const auto action = action_from_text(entry["action"].get_ref<const std::string&>());
    if (!action) return Error(where + ": unknown action");
    rule.action = *action;

    std::string_view pattern = entry["pattern"].get_ref<const std::string&>();
    const auto bad = [&](std::string_view why) {
      return Error(where + ": pattern: " + std::string(why));
    };
    if (pattern.find('\0') != std::string_view::npos) return bad("contains NUL");
    if (pattern.front() == '!') return bad("\"!\" is not a pattern here; use action writable");
    if (pattern.ends_with('/')) {
      rule.directories_only = true;
      pattern.remove_suffix(1);
    }
    rule.anchored = pattern.find('/') != std::string_view::npos;
    if (pattern.starts_with('/')) pattern.remove_prefix(1);
    for (const std::string_view component : split(pattern)) {
      if (component.empty()) return bad("an empty component never matches");
      if (component == "." || component == "..") return bad("\".\" and \"..\" never match");
      if (!is_valid_glob(component)) return bad("unclosed bracket or escape");
      // Between slashes other runs of stars are plain stars; a run of "**" is one.
      if (component == kAnyDepth && !rule.components.empty() &&
          rule.components.back() == kAnyDepth) {
        continue;
      }
      rule.components.emplace_back(component);
    }
    // "**/name" is "name" (gitignore(5)).
    if (rule.components.size() == 2 && rule.components[0] == kAnyDepth &&
        rule.components[1] != kAnyDepth) {
      rule.components.erase(rule.components.begin());
      rule.anchored = false;
    }
    if (!rule.anchored && rule.components[0] == kAnyDepth) rule.components[0] = "*";

    const int index = static_cast<int>(out.rules_.size());
    if (!rule.anchored && is_literal(rule.components[0])) {
      const std::string& name = rule.components[0];
      out.by_name_[names == Names::kFoldCase ? fold(name) : name].push_back(index);
    } else {
      out.others_.push_back(index);
    }
    out.rules_.push_back(std::move(rule));
  }
  return out;
}

bool FsRules::matches(const Rule& rule, const std::vector<std::string_view>& path,
                      std::size_t length, bool is_dir) const {
  if (rule.directories_only && !is_dir) return false;
  const bool fold_case = names_ == Names::kFoldCase;
  if (!rule.anchored) return glob_matches(rule.components[0], path[length - 1], fold_case);
  return components_match(rule.components, path, length, fold_case);
}

int FsRules::last_match(const std::vector<std::string_view>& path, std::size_t length,
                        bool is_dir) const {
  int best = -1;
  if (!by_name_.empty()) {
    const std::string_view name = path[length - 1];
    const auto found = by_name_.find(names_ == Names::kFoldCase ? fold(name) : std::string(name));
    if (found != by_name_.end()) {
      for (const int index : found->second) {
        if (is_dir || !rules_[static_cast<std::size_t>(index)].directories_only) best = index;
      }
    }
  }
  for (const int index : others_) {
    if (index > best && matches(rules_[static_cast<std::size_t>(index)], path, length, is_dir)) {
      best = index;
    }
  }
  return best;
}

FsDecision FsRules::decide(std::string_view path, bool is_dir) const {
  if (path.empty()) return {FsAction::kNone, ""};
  const std::vector<std::string_view> names = split(path);
  if (!is_path(names)) return {};
  int best = -1;
  for (std::size_t length = 1; length <= names.size(); ++length) {
    best = std::max(best, last_match(names, length, is_dir || length < names.size()));
    if (best < 0) continue;
    const Rule& rule = rules_[static_cast<std::size_t>(best)];
    const FsDecision decision{rule.action, rule.id};
    if (!decision.visible() || length == names.size()) return decision;
  }
  return {FsAction::kNone, ""};
}

bool FsRules::place_matters_below(std::string_view path) const {
  const std::vector<std::string_view> names =
      path.empty() ? std::vector<std::string_view>() : split(path);
  const bool fold_case = names_ == Names::kFoldCase;
  for (const Rule& rule : rules_) {
    if (!rule.anchored) {
      // It follows the object, unless it matches a parent and so speaks for all below it.
      for (const std::string_view name : names) {
        if (glob_matches(rule.components[0], name, fold_case)) return true;
      }
      continue;
    }
    bool possible = true;
    for (std::size_t i = 0; i < names.size() && i < rule.components.size(); ++i) {
      if (rule.components[i] == kAnyDepth) break;
      if (!glob_matches(rule.components[i], names[i], fold_case)) {
        possible = false;
        break;
      }
    }
    if (possible) return true;
  }
  return false;
}

}  // namespace cofferdam::policy
