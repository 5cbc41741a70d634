// Who the workload's programs are, which may be executed, and what they may ask of the kernel.
#include <algorithm>

#include "orchestrator/make_plan.h"

namespace cofferdam::orchestrator {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostExecutables = 256;
constexpr const char* kWritableTrees[] = {"/tmp", "/var/tmp", "/dev", "/run", "/proc"};
constexpr std::size_t kMostBytes = 32U << 10U;  // all paths together: one message to process 1

bool lies_in(const fs::path& path, const fs::path& directory) {
  const fs::path rest = path.lexically_relative(directory);
  return !rest.empty() && *rest.begin() != "..";
}

// What can be written can be replaced by another program of that name.
std::string writable_tree(const Plan& plan, const std::string& path) {
  const MountPlan* nearest = nullptr;
  for (const MountPlan& mount : plan.mounts) {
    if (!lies_in(path, mount.inside)) continue;
    if (nearest == nullptr || nearest->inside.size() < mount.inside.size()) nearest = &mount;
  }
  if (nearest != nullptr) return nearest->writable ? nearest->inside : "";
  for (const char* tree : kWritableTrees) {
    if (lies_in(path, tree)) return tree;
  }
  return {};
}

// What is permitted below a directory is so in what is mounted there too.
std::string writable_tree_below(const Plan& plan, const std::string& path) {
  for (const MountPlan& mount : plan.mounts) {
    if (mount.writable && lies_in(mount.inside, path)) return mount.inside;
  }
  for (const char* tree : kWritableTrees) {
    if (lies_in(tree, path)) return tree;
  }
  return {};
}

Status plan_executables(const Manifest& manifest, const HostFacts& facts, Plan* plan) {
  if (manifest.executables.empty()) return {};
  constexpr int kLeastAbi = 2;  // before it, no file could be renamed between directories
  const auto& accepted = manifest.accept_missing;
  if (facts.landlock_abi < kLeastAbi) {
    if (std::find(accepted.begin(), accepted.end(), "executables") == accepted.end()) {
      return Error(
          "process.executables: this kernel has no Landlock of ABI 2 or newer. Remedy: a kernel "
          "with lsm=landlock,…; or accept_missing: [executables] in the manifest");
    }
    plan->lines.push_back({"note",
                           "which programs are executed is not limited: this machine cannot, and "
                           "the manifest accepts it"});
    return {};
  }
  std::size_t bytes = 0;
  std::string text;
  for (const std::string& path : manifest.executables) {
    if (path == "/") return Error("process.executables: / is everything; leave the key out");
    if (const std::string tree = writable_tree(*plan, path); !tree.empty()) {
      return Error("process.executables: " + path + " lies in " + tree +
                   ", which can be written inside: another program could take its place. Remedy: "
                   "name what lies in read-only trees (/usr, /opt, a read-only mount)");
    }
    if (const std::string tree = writable_tree_below(*plan, path); !tree.empty()) {
      return Error("process.executables: " + path + " holds " + tree +
                   ", which can be written inside: whatever is put there could be executed. "
                   "Remedy: name the read-only directories in it one by one");
    }
    bytes += path.size();
    text += (text.empty() ? "" : ", ") + path;
  }
  if (manifest.executables.size() > kMostExecutables || bytes > kMostBytes) {
    return Error("process.executables: more than 256 paths or 32 KiB; name directories");
  }
  plan->executables = manifest.executables;
  plan->lines.push_back({"programs", "only " + text + " (tidiness, not a boundary)"});
  return {};
}

}  // namespace

Status plan_process(const PlanRequest& request, const HostFacts& facts, Plan* plan) {
  const Manifest& manifest = request.manifest;
  if (!manifest.capabilities.empty()) {
    std::string names;
    for (const std::string& name : manifest.capabilities) {
      names += (names.empty() ? "" : ", ") + name;
    }
    return Error(
        "process.capabilities: " + names +
        ": neither engine can give a workload capabilities: its user is an unused one of this "
        "machine without any other in its namespace, where they would mean nothing. Remedy: leave "
        "the key out; what needs several users inside (apt, useradd) belongs into the image");
  }
  if (manifest.user == "root") {
    if (manifest.engine == "docker") {
      return Error(
          "process.user: engine docker has no user namespace: root inside would be root of this "
          "machine. Remedy: engine: native, where it is only a name; or leave the key out");
    }
    plan->ids.inside_uid = 0;
    plan->ids.inside_gid = 0;
    plan->lines.push_back({"user", "root inside, without its rights: " + plan->user_name +
                                       " owns the workspace and HOME, and nothing else"});
  }
  plan->seccomp = manifest.seccomp;
  if (manifest.seccomp != "default") {
    plan->lines.push_back({"seccomp", "profile " + manifest.seccomp});
  }
  return plan_executables(manifest, facts, plan);
}

}  // namespace cofferdam::orchestrator
