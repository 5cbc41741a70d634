// The two policies that a plan carries for the services.
#include <algorithm>
#include <map>
#include <set>

#include "common/policy/egress_policy.h"
#include "common/policy/fs_rules.h"
#include "orchestrator/make_plan.h"
#include "orchestrator/manifest/embedded.h"

namespace cofferdam::orchestrator {
namespace {

constexpr std::uint32_t kNobody = 65534;

// Ids that people can read and that are unique: "default:.env", a second one "default:.env#2".
class RuleList {
 public:
  void add(const std::string& source, const std::string& action, const std::string& pattern) {
    const std::string id = source + ":" + pattern;
    const int count = ++seen_[id];
    rules_.push_back({{"id", count == 1 ? id : id + "#" + std::to_string(count)},
                      {"action", action},
                      {"pattern", pattern}});
  }
  const Json& rules() const { return rules_; }

 private:
  std::map<std::string, int> seen_;
  Json rules_ = Json::array();
};

constexpr std::string_view kHooks = ".git/hooks/**";

// Whose objects the workload sees as its own: the caller's, and when root works on another user's
// project, that user's.
Json owners(std::uint32_t caller, std::uint32_t workspace_owner) {
  Json ids = Json::array({caller});
  if (caller == 0 && workspace_owner != 0) ids.push_back(workspace_owner);
  return ids;
}

Result<Json> home_rules() {
  TRY_ASSIGN(const Json data, parse_json(embedded_home_rules()).context("home_outside.json"));
  RuleList list;
  try {
    for (const Json& pattern : data.at("outside")) {
      list.add("home", "outside", pattern.get<std::string>());
    }
  } catch (const Json::exception& error) {
    return Error(error.what()).context("home_outside.json");
  }
  return list.rules();
}

// Only these paths exist: at each level on the way to them everything is hidden, and then what is
// named is lifted. A directory that is named whole hides nothing below it.
void add_include(const std::vector<std::string>& include, RuleList* list) {
  if (include.empty()) return;
  std::set<std::string> levels{""};  // directories of which only a part exists
  std::set<std::string> lifted;
  std::vector<std::string> paths;
  for (std::string path : include) {
    while (path.ends_with('/')) path.pop_back();
    if (!path.starts_with('/')) path.insert(0, "/");
    paths.push_back(std::move(path));
  }
  const auto is_whole = [&](const std::string& directory) {
    return std::any_of(paths.begin(), paths.end(), [&](const std::string& path) {
      return directory == path || directory.starts_with(path + "/");
    });
  };
  for (const std::string& path : paths) {
    for (std::size_t slash = path.find('/', 1); slash != std::string::npos;
         slash = path.find('/', slash + 1)) {
      const std::string parent = path.substr(0, slash);
      lifted.insert(parent);
      if (!is_whole(parent)) levels.insert(parent);
    }
    lifted.insert(path);
  }
  // A rule counts for everything below what it matches: level by level, the outermost first.
  const auto depth_of = [](const std::string& path) {
    return std::count(path.begin(), path.end(), '/');
  };
  std::set<std::pair<std::ptrdiff_t, std::string>> hides;
  std::set<std::pair<std::ptrdiff_t, std::string>> lifts;
  for (const std::string& level : levels) hides.emplace(depth_of(level), level + "/*");
  for (const std::string& path : lifted) lifts.emplace(depth_of(path), path);
  while (!hides.empty() || !lifts.empty()) {
    const bool hide =
        !hides.empty() && (lifts.empty() || hides.begin()->first < lifts.begin()->first);
    auto& next = hide ? hides : lifts;
    list->add("include", hide ? "hide" : "writable", next.begin()->second);
    next.erase(next.begin());
  }
}

// Which rules stand in which mount. The workspace's own rules hold in extra mounts too: a secret's
// name is one wherever it lies.
Result<Json> mount_rules(const PlanRequest& request, const MountPlan& mount) {
  if (mount.name == "home") return home_rules();
  RuleList list;
  if (mount.name == "gitdir") {
    list.add("default", "readonly", "/hooks/**");
    return list.rules();
  }
  if (mount.name == "workspace") add_include(request.manifest.include, &list);
  for (const FileRule& rule : request.manifest.file_rules) {
    if (mount.name != "workspace" && rule.action == "readonly") continue;
    // The hooks of a repository that is yet to be made inside protect nothing: no `.git` goes home.
    // With the rule `git init` could not put its samples there.
    if (!request.workspace.has_git && rule.source == "default" && rule.pattern == kHooks) continue;
    // The last rule that matches wins: this one would show what include leaves out.
    if (mount.name == "workspace" && !request.manifest.include.empty() &&
        rule.action == "writable") {
      if (rule.source == "default") continue;
      return Error("writable: " + rule.pattern + " (" + rule.source +
                   ") cannot stand beside workspace.include in this version. Remedy: name what is "
                   "wanted in include");
    }
    list.add(rule.source, rule.action, rule.pattern);
  }
  std::vector<ExtraMount> mounts = request.manifest.mounts;
  mounts.insert(mounts.end(), request.submounts.begin(), request.submounts.end());
  for (const ExtraMount& extra : mounts) {
    if (extra.target != mount.inside || mount.name == "workspace") continue;
    for (const std::string& pattern : extra.hide) list.add("manifest", "hide", pattern);
  }
  return list.rules();
}

// A workspace below a name that HOME does not show could never be reached.
Status check_workspace_visible(const Plan& plan, const Json& rules) {
  const std::filesystem::path below =
      std::filesystem::path(plan.workspace).lexically_relative(plan.home);
  if (below.empty() || *below.begin() == "..") return {};
  TRY_ASSIGN(const policy::FsRules parsed, policy::FsRules::parse(rules));
  const policy::FsDecision decision = parsed.decide(below.string(), true);
  if (decision.visible()) return {};
  return Error("the workspace " + plan.workspace + " lies in a part of HOME that is never shown (" +
               std::string(decision.rule) + "); move the project");
}

}  // namespace

Result<Json> make_fs_policy(const PlanRequest& request, const Plan& plan) {
  Json mounts = Json::array();
  for (const MountPlan& mount : plan.mounts) {
    TRY_ASSIGN(Json rules, mount_rules(request, mount).context("mount " + mount.name));
    if (auto parsed = policy::FsRules::parse(rules); !parsed.ok()) {
      return parsed.error().context("mount " + mount.name);
    }
    if (mount.name == "home") TRY(check_workspace_visible(plan, rules));
    mounts.push_back({{"name", mount.name},
                      {"path", mount.inside},
                      {"lower", mount.lower ? Json(*mount.lower) : Json()},
                      {"layer", mount.layer ? Json(*mount.layer) : Json()},
                      {"writable", mount.writable},
                      {"record", mount.name == "workspace" && mount.writable},
                      {"xattr", mount.writable && request.manifest.xattr},
                      {"rules", std::move(rules)}});
  }
  return Json{
      {"version", 1},
      {"sandbox", plan.sandbox_id},
      {"operation", plan.operation_id},
      {"manifest", plan.manifest_digest},
      {"owner",
       {{"uids", owners(plan.ids.caller_uid, request.workspace.owner_uid)},
        {"gids", plan.ids.caller_uid == 0 ? owners(plan.ids.caller_gid, request.workspace.owner_gid)
                                          : Json::array({plan.ids.caller_gid})},
        {"shown_uid", plan.ids.inside_uid},
        {"shown_gid", plan.ids.inside_gid},
        {"other_uid", kNobody},
        {"other_gid", kNobody}}},
      {"quota",
       {{"bytes", request.manifest.quota_bytes}, {"entries", request.manifest.quota_entries}}},
      {"mounts", std::move(mounts)}};
}

Result<Json> make_egress_policy(const PlanRequest& request, const Plan& plan) {
  std::map<std::string, int> numbers;
  const auto list = [&](const std::vector<NetworkRule>& from, const std::string& prefix) {
    Json out = Json::array();
    for (const NetworkRule& rule : from) {
      const std::string group = prefix + rule.source;
      out.push_back({{"id", group + ":" + std::to_string(++numbers[group])},
                     {"rule", rule.text},
                     {"source", rule.source}});
      if (rule.budget != policy::Budget{}) out.back()["budgets"] = policy::to_json(rule.budget);
    }
    return out;
  };
  const Manifest manifest = effective_manifest(request);
  Json policy = {{"version", 1},
                 {"sandbox", plan.sandbox_id},
                 {"operation", plan.operation_id},
                 {"manifest", plan.manifest_digest},
                 {"mode", manifest.mode == "open" ? "open" : manifest.network_mode},
                 {"budgets", policy::to_json(manifest.budget)},
                 {"mixed", manifest.mixed},
                 {"rules", list(manifest.rules, "")},
                 {"deny", list(manifest.deny, "deny:")},
                 {"host_addresses", manifest.host_addresses},
                 {"resolver",
                  {{"servers", manifest.resolver_servers},
                   {"timeout_ms", manifest.resolver_timeout.count()},
                   {"hosts_file", manifest.hosts_file}}},
                 {"nat64", manifest.nat64}};
  if (!manifest.upstream_proxy.empty()) {
    policy["upstream_proxy"] = {{"url", manifest.upstream_proxy},
                                {"connect", manifest.upstream_connect}};
    const auto& accepted = manifest.accept_missing;
    if (std::find(accepted.begin(), accepted.end(), "address_check") != accepted.end()) {
      policy["accept_missing"] = Json::array({"address_check"});
    }
  }
  if (auto parsed = policy::EgressPolicy::from_json(policy); !parsed.ok()) {
    return parsed.error().context("network policy");
  }
  return policy;
}

}  // namespace cofferdam::orchestrator
