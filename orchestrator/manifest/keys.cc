#include "orchestrator/manifest/keys.h"

#include <algorithm>
#include <array>

namespace cofferdam::orchestrator {
namespace {

constexpr std::array kKeys = {
    KeySpec{"version", Shape::kEnum, "1"},
    KeySpec{"template", Shape::kEnum, "install|test|agent|build|locked-down"},
    KeySpec{"name", Shape::kName},
    KeySpec{"tenant", Shape::kLabel},
    KeySpec{"task", Shape::kLabel},
    KeySpec{"creator", Shape::kLabel},
    KeySpec{"expiry", Shape::kTime},
    KeySpec{"policy_version", Shape::kLabel},
    KeySpec{"engine", Shape::kEnum, "native|docker"},
    KeySpec{"image", Shape::kString},
    KeySpec{"runtime", Shape::kLater},
    KeySpec{"mode", Shape::kEnum, "read-only|workspace|open"},
    KeySpec{"presets", Shape::kEnumList, "npm|pip|cargo|go|apt|git"},

    KeySpec{"workspace", Shape::kMap},
    KeySpec{"workspace.source", Shape::kPath},
    KeySpec{"workspace.include", Shape::kIncludeList},
    KeySpec{"workspace.hide", Shape::kGlobList},
    KeySpec{"workspace.readonly", Shape::kGlobList},
    KeySpec{"workspace.writable", Shape::kGlobList},
    KeySpec{"workspace.xattr", Shape::kBool},
    KeySpec{"workspace.quota", Shape::kMap},
    KeySpec{"workspace.quota.bytes", Shape::kSize},
    KeySpec{"workspace.quota.entries", Shape::kCount},

    KeySpec{"mounts", Shape::kMapList},
    KeySpec{"mounts[].source", Shape::kPath},
    KeySpec{"mounts[].target", Shape::kPath},
    KeySpec{"mounts[].mode", Shape::kEnum, "read-only|ro|cow"},
    KeySpec{"mounts[].hide", Shape::kGlobList},
    KeySpec{"mounts[].recursive", Shape::kBool},
    KeySpec{"mounts[].follow_symlink", Shape::kBool},
    KeySpec{"mounts[].classification", Shape::kEnum, "public|internal|confidential|restricted"},

    KeySpec{"filesystem", Shape::kMap},
    KeySpec{"filesystem.read", Shape::kPathList},
    KeySpec{"filesystem.tmp", Shape::kMap},
    KeySpec{"filesystem.tmp.size", Shape::kSize},
    KeySpec{"filesystem.tmp.exec", Shape::kBool},
    KeySpec{"filesystem.shm", Shape::kMap},
    KeySpec{"filesystem.shm.size", Shape::kSize},

    KeySpec{"network", Shape::kMap},
    KeySpec{"network.mode", Shape::kEnum, "enforce|monitor"},
    KeySpec{"network.rules", Shape::kRuleList},
    KeySpec{"network.rules[].rule", Shape::kRule},
    KeySpec{"network.rules[].budgets", Shape::kMap},
    KeySpec{"network.rules[].budgets.bytes_up", Shape::kSize},
    KeySpec{"network.rules[].budgets.bytes_down", Shape::kSize},
    KeySpec{"network.rules[].budgets.connections", Shape::kCount},
    KeySpec{"network.rules[].budgets.connections_per_second", Shape::kCount},
    KeySpec{"network.rules[].budgets.names_per_minute", Shape::kCount},
    KeySpec{"network.deny", Shape::kDenyList},
    KeySpec{"network.mixed", Shape::kEnum, "drop|refuse"},
    KeySpec{"network.host_addresses", Shape::kAddressList},
    KeySpec{"network.resolver", Shape::kMap},
    KeySpec{"network.resolver.servers", Shape::kServerList},
    KeySpec{"network.resolver.timeout", Shape::kDuration},
    KeySpec{"network.resolver.hosts_file", Shape::kBool},
    KeySpec{"network.nat64", Shape::kNat64List},
    KeySpec{"network.budgets", Shape::kMap},
    KeySpec{"network.budgets.bytes_up", Shape::kSize},
    KeySpec{"network.budgets.bytes_down", Shape::kSize},
    KeySpec{"network.budgets.connections", Shape::kCount},
    KeySpec{"network.budgets.connections_per_second", Shape::kCount},
    KeySpec{"network.budgets.names_per_minute", Shape::kCount},
    KeySpec{"network.upstream_proxy", Shape::kMap},
    KeySpec{"network.upstream_proxy.url", Shape::kProxyUrl},
    KeySpec{"network.upstream_proxy.connect", Shape::kEnum, "address|name"},
    KeySpec{"network.intercept", Shape::kLater},

    KeySpec{"env", Shape::kMap},
    KeySpec{"env.inherit", Shape::kEnum, "none|safe|explicit"},
    KeySpec{"env.allow", Shape::kVariableList},
    KeySpec{"env.set", Shape::kVariableMap},

    KeySpec{"process", Shape::kMap},
    KeySpec{"process.pids", Shape::kCount},
    KeySpec{"process.memory", Shape::kSize},
    KeySpec{"process.cpus", Shape::kNumber},
    KeySpec{"process.timeout", Shape::kDuration},
    KeySpec{"process.grace", Shape::kDuration},
    KeySpec{"process.user", Shape::kLater},
    KeySpec{"process.capabilities", Shape::kLater},
    KeySpec{"process.seccomp", Shape::kLater},
    KeySpec{"process.executables", Shape::kLater},
    KeySpec{"process.output", Shape::kLater},
    KeySpec{"process.open_files", Shape::kLater},
    KeySpec{"process.file_size", Shape::kLater},

    KeySpec{"accept_missing", Shape::kEnumList, "pids|memory|cpus|address_check"},
    KeySpec{"secrets", Shape::kMapList},
    KeySpec{"secrets[].name", Shape::kVariableName},
    KeySpec{"secrets[].from", Shape::kMap},
    KeySpec{"secrets[].from.file", Shape::kPath},
    KeySpec{"secrets[].from.env", Shape::kVariableName},
    KeySpec{"secrets[].from.command", Shape::kWordList},
    KeySpec{"secrets[].as", Shape::kEnum, "variable|file"},
    KeySpec{"secrets[].commands", Shape::kWordList},
    KeySpec{"lifetime", Shape::kLater},
    KeySpec{"phases", Shape::kLater},
    KeySpec{"artifacts", Shape::kMapList},
    KeySpec{"artifacts[].paths", Shape::kGlobList},
    KeySpec{"artifacts[].owner", Shape::kString},
    KeySpec{"artifacts[].classification", Shape::kEnum, "public|internal|confidential|restricted"},
    KeySpec{"artifacts[].retention", Shape::kDuration},
    KeySpec{"caches", Shape::kLater},
    KeySpec{"tools", Shape::kMapList},
    KeySpec{"tools[].name", Shape::kLabel},
    KeySpec{"tools[].server", Shape::kLabel},
    KeySpec{"tools[].version", Shape::kLabel},
    KeySpec{"tools[].actions", Shape::kWordList},
    KeySpec{"tools[].scope", Shape::kWordList},
    KeySpec{"tools[].approval", Shape::kEnum, "auto|ask|deny"},
    KeySpec{"tools[].calls_per_minute", Shape::kCount},
    KeySpec{"tools[].cost", Shape::kNumber},
    KeySpec{"tools[].credential", Shape::kVariableName},
};

}  // namespace

std::span<const KeySpec> manifest_keys() {
  return kKeys;
}

const KeySpec* find_key(std::string_view path) {
  const auto* const found = std::find_if(kKeys.begin(), kKeys.end(),
                                         [&](const KeySpec& key) { return key.path == path; });
  return found == kKeys.end() ? nullptr : found;
}

}  // namespace cofferdam::orchestrator
