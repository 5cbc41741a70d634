// Presets: a package manager's registry, allowed by asking the user's own client about it.
//
// The client is asked in an empty directory of ours with a cleaned environment, never in the
// workspace: a repository's own configuration must not choose what is allowed.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/policy/address.h"
#include "orchestrator/plan.h"
#include "orchestrator/presets/npm_config.h"

namespace cofferdam::orchestrator {

struct PresetQuery {
  std::filesystem::path workspace;
  std::filesystem::path state;  // where the empty directory is made
  std::string home;
  std::string user_name;
};

// What a preset adds to a plan.
struct PresetResult {
  std::string name;
  std::vector<std::string> rules;  // egress rules, source preset:NAME
  std::map<std::string, std::string> env;
  std::map<std::string, std::string> files;  // path inside → content
  std::vector<PlanLine> lines;
  std::vector<std::string> hints;
};

// Reads the user's configuration of the client, or asks the client, and resolves what it names.
// Unknown names are errors, and so is a client that names nothing.
Result<PresetResult> discover_preset(std::string_view name, const PresetQuery& query);

// The addresses of a name, in no order; an error when there are none.
using ResolveHost =
    std::function<Result<std::vector<policy::IpAddress>>(const policy::HostName& name)>;

// The rule for one registry with exactly its policy-tier addresses opened, and the plan's lines for
// it. An address of the floor is an error: no rule could open it.
Status add_registry(const RegistryUrl& url, std::string_view what, const ResolveHost& resolve,
                    PresetResult* result, std::string_view origin = "from your own configuration");

// The plan's additions for npm; pure but for `resolve`. `ca_bundle` are certificates that the
// user's configuration adds, `extra_only` when they come from NODE_EXTRA_CA_CERTS alone;
// `project_npmrc` is the content of the workspace's own .npmrc.
struct NpmSurroundings {
  std::string ca_bundle;
  bool extra_only = false;
  std::string project_npmrc;
};
Result<PresetResult> npm_preset(const NpmConfig& config, const NpmSurroundings& surroundings,
                                const ResolveHost& resolve);

}  // namespace cofferdam::orchestrator
