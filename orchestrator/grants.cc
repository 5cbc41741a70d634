#include "orchestrator/grants.h"

#include <fcntl.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "common/base/sha256.h"
#include "common/log/event_log.h"
#include "common/os/file_lock.h"
#include "common/os/files.h"
#include "common/policy/egress_policy.h"
#include "orchestrator/egress_control.h"

namespace cofferdam::orchestrator {
namespace {

constexpr std::chrono::seconds kLockPatience{10};

WallTime wall_now() {
  return std::chrono::system_clock::now();
}

Json grant_json(const Grant& grant) {
  return {{"id", grant.id},
          {"rule", grant.rule},
          {"who", grant.who},
          {"why", grant.why},
          {"granted", grant.granted},
          {"expires", grant.expires},
          {"manifest", grant.manifest}};
}

Result<Grant> grant_from(const Json& json) {
  try {
    return Grant{json.at("id"),      json.at("rule"),    json.at("who"),     json.at("why"),
                 json.at("granted"), json.at("expires"), json.at("manifest")};
  } catch (const Json::exception& error) {
    return Error(error.what());
  }
}

// Two grants at once: the second one sees the first.
Result<os::FileLock> lock_grants(const SandboxRecord& sandbox) {
  const auto end = std::chrono::steady_clock::now() + kLockPatience;
  while (true) {
    TRY_ASSIGN(auto lock, os::FileLock::try_acquire(sandbox.directory / "grants.lock"));
    if (lock) return std::move(*lock);
    if (std::chrono::steady_clock::now() >= end) return Error("another grant is being given");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// The policy with the grant in front, so that its budgets and its end are its own even where
// another rule allows the same; without the rules whose time is over.
Result<Json> policy_with(const SandboxRecord& sandbox, const Grant& grant,
                         const policy::Budget& budget) {
  TRY_ASSIGN(const std::string text, os::read_file(sandbox.egress_policy()));
  TRY_ASSIGN(Json policy, parse_json(text).context("egress.json"));
  Json rules = Json::array();
  rules.push_back(
      {{"id", grant.id}, {"rule", grant.rule}, {"source", "grant"}, {"expires", grant.expires}});
  if (budget != policy::Budget{}) rules.back()["budgets"] = policy::to_json(budget);
  for (const Json& rule : policy.value("rules", Json::array())) {
    const auto end = parse_rfc3339(rule.value("expires", ""));
    if (!end || *end > wall_now()) rules.push_back(rule);
  }
  policy["rules"] = std::move(rules);
  policy["manifest"] = grant.manifest;
  if (auto parsed = policy::EgressPolicy::from_json(policy); !parsed.ok()) return parsed.error();
  return policy;
}

}  // namespace

bool Grant::active(WallTime now) const {
  const auto end = parse_rfc3339(expires);
  return end && *end > now;
}

Result<std::vector<Grant>> read_grants(const SandboxRecord& sandbox) {
  std::vector<Grant> grants;
  const auto text = os::read_file(sandbox.grants());
  if (!text.ok()) {
    if (text.error().error_number() == ENOENT) return grants;
    return text.error();
  }
  TRY_ASSIGN(const Json json, parse_json(*text).context("grants.json"));
  for (const Json& entry : json) {
    TRY_ASSIGN(Grant grant, grant_from(entry).context("grants.json"));
    grants.push_back(std::move(grant));
  }
  return grants;
}

Json grants_json(const std::vector<Grant>& grants, WallTime now) {
  Json list = Json::array();
  for (const Grant& grant : grants) {
    list.push_back(grant_json(grant));
    list.back()["active"] = grant.active(now);
  }
  return list;
}

Result<Grant> give_grant(const SandboxRecord& sandbox, const GrantRequest& request) {
  TRY_ASSIGN(const os::FileLock lock, lock_grants(sandbox));
  TRY(sandbox.in_no_phase());
  TRY_ASSIGN(std::vector<Grant> grants, read_grants(sandbox));
  const WallTime now = wall_now();
  Grant grant;
  grant.id = "grant:" + std::to_string(grants.size() + 1);
  grant.rule = request.rule;
  grant.who = request.who;
  grant.why = request.why;
  grant.granted = to_rfc3339(now);
  grant.expires = to_rfc3339(now + request.duration);
  // A revision of the rights: what they were, and what came to them.
  const std::string before = grants.empty() ? sandbox.manifest : grants.back().manifest;
  grant.manifest = before;
  grant.manifest = "sha256:" + to_hex(sha256(canonical_json(grant_json(grant))));
  TRY_ASSIGN(const Json policy, policy_with(sandbox, grant, request.budget));
  TRY_ASSIGN(const std::string operation, make_sandbox_id());
  // Nothing is allowed that is not recorded.
  TRY_ASSIGN(os::UniqueFd fd, os::open_file(sandbox.events(), O_WRONLY | O_APPEND));
  log::EventLog events(std::move(fd), {sandbox.id, operation, grant.manifest, "supervisor"});
  TRY(events.write("grant", {{"parent", policy.value("operation", "")},
                             {"approval.id", grant.id},
                             {"rule_id", grant.id},
                             {"text", grant.rule},
                             {"source", "grant"},
                             {"who", grant.who},
                             {"why", grant.why},
                             {"expires", grant.expires},
                             {"previous_manifest", before}}));
  const std::string text = canonical_json(policy) + "\n";
  if (auto asked = ask_egressproxy(sandbox, "PUT", "/policy", text); !asked.ok()) {
    (void)events
        .write("grant_failed", {{"rule_id", grant.id}, {"message", asked.error().message()}})
        .ok();
    return asked.error();
  }
  grants.push_back(grant);
  Json list = Json::array();
  for (const Grant& one : grants) list.push_back(grant_json(one));
  TRY(os::write_file_atomic(sandbox.grants(), canonical_json(list) + "\n"));
  TRY(os::write_file_atomic(sandbox.egress_policy(), text));
  return grant;
}

}  // namespace cofferdam::orchestrator
