// make_plan: manifest + what was found out → plan, or a refusal with its remedy. Pure.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/base/text_time.h"
#include "orchestrator/host_facts.h"
#include "orchestrator/manifest/manifest.h"
#include "orchestrator/plan.h"
#include "orchestrator/presets/presets.h"
#include "orchestrator/workspace.h"

namespace cofferdam::orchestrator {

// Everything that a plan is made from besides the host's facts, gathered before.
struct PlanRequest {
  std::string sandbox_id;
  std::string operation_id;
  std::filesystem::path sandbox_directory;  // …/sandboxes/<id>
  Manifest manifest;                        // effective, presets' rules not yet in it
  std::optional<WallTime> now;              // for the manifest's expiry; none: not looked at
  std::string manifest_source;              // for the plan's lines
  Workspace workspace;
  std::vector<PresetResult> presets;
  std::vector<PresetResult> phase_presets;      // those that phases name
  std::map<std::string, std::string> host_env;  // the caller's own
  // --env: NAME=VALUE, and NAME with the caller's value. Never stored in the manifest.
  std::map<std::string, std::string> carried_env;
  std::vector<SecretPlan> secrets;       // read already
  std::vector<ExtraMount> submounts;     // file systems below recursive mounts
  std::vector<std::string> system_path;  // the caller's PATH: only root-owned system directories
  bool opt_exists = false;
  std::vector<std::string> tracked;       // paths in the workspace's git index
  std::optional<std::uint32_t> id_range;  // started by root
  std::vector<std::string> argv;
  bool interactive = false;
  bool terminal = false;
  bool keep = false;  // -d: a command is not needed
  std::vector<std::string> notes;
};

Result<Plan> make_plan(const PlanRequest& request, const HostFacts& facts);

// The manifest with the presets' rules in it: what is digested and stored.
Manifest effective_manifest(const PlanRequest& request);

// fs.json and egress.json of docs/processes.md; checked by the services' own parsers.
Result<Json> make_fs_policy(const PlanRequest& request, const Plan& plan);
Result<Json> make_egress_policy(const PlanRequest& request, const Plan& plan);

// The phases of the manifest: policy, variables and files of each; adds the plan's lines for them.
Status plan_phases(const PlanRequest& request, const HostFacts& facts, Plan* plan);

// The name of the workload's user inside.
std::string shown_user(const PlanRequest& request, const HostFacts& facts);

// Users, programs and system calls of the workload; in plan_process.cc.
Status plan_process(const PlanRequest& request, const HostFacts& facts, Plan* plan);

// The variables of the workload. Nothing of the caller's but a safe set and what was asked for.
Result<std::map<std::string, std::string>> make_env(const PlanRequest& request,
                                                    const HostFacts& facts);

// The whole plan, for `run --dry-run --json`. Values of variables in `secret` are left out.
Json plan_json(const Plan& plan, const std::map<std::string, std::string>& secret);

}  // namespace cofferdam::orchestrator
