#include "orchestrator/engine/launcher.h"

#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "orchestrator/init/protocol.h"

namespace cofferdam::orchestrator {
namespace {

// Directories are covered by an empty read-only tmpfs, files by a file without any permission.
constexpr const char* kProcMasks[] = {
    "/proc/acpi",       "/proc/asound",        "/proc/bus",         "/proc/fs",
    "/proc/irq",        "/proc/kallsyms",      "/proc/kcore",       "/proc/key-users",
    "/proc/keys",       "/proc/kmsg",          "/proc/kpagecgroup", "/proc/kpagecount",
    "/proc/kpageflags", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi",
    "/proc/slabinfo",   "/proc/sysrq-trigger", "/proc/timer_list",  "/proc/timer_stats",
    "/proc/vmallocinfo"};

constexpr char kEtc[] = "/etc";

bool is_directory(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

std::size_t depth(const std::string& path) {
  return static_cast<std::size_t>(std::count(path.begin(), path.end(), '/'));
}

class Options final {
 public:
  void add(std::initializer_list<std::string> words) {
    options_.insert(options_.end(), words.begin(), words.end());
  }
  std::vector<std::string> take() { return std::move(options_); }

 private:
  std::vector<std::string> options_;
};

void add_namespaces(Options& options, const Plan& plan) {
  options.add({"--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
               "--unshare-cgroup-try", "--disable-userns", "--die-with-parent", "--new-session",
               "--clearenv", "--as-pid-1"});
  options.add({"--cap-drop", "ALL"});
  options.add({"--uid", std::to_string(plan.ids.inside_uid)});
  options.add({"--gid", std::to_string(plan.ids.inside_gid)});
  options.add({"--hostname", plan.hostname});
  options.add({"--info-fd", std::to_string(init::kLauncherInfoFd)});
}

bool covers(const std::string& tree, const std::string& path) {
  return path == tree || (path.rfind(tree, 0) == 0 && path[tree.size()] == '/');
}

// Directories of /tmp that lead to a mount and are no mount themselves. What lies beside a mount is
// not writable, there as elsewhere: they become small file systems of their own.
std::set<std::string> find_ways_through_tmp(const Plan& plan) {
  constexpr std::string_view kTmp = "/tmp/";
  std::set<std::string> ways;
  for (const MountPlan& mount : plan.mounts) {
    const auto slash = mount.inside.find('/', kTmp.size());
    if (mount.inside.rfind(kTmp, 0) != 0 || slash == std::string::npos) continue;
    ways.insert(mount.inside.substr(0, slash));
  }
  for (const MountPlan& mount : plan.mounts) ways.erase(mount.inside);
  return ways;
}

// bubblewrap makes missing parents of a bind 0700: they are made beforehand, outermost first,
// unless they lie in something that is bound.
void add_parents(Options& options, const Plan& plan, const SystemTrees& trees, const StagedEtc& etc,
                 const std::vector<std::string>& files) {
  std::vector<std::string> bound = trees.binds;
  if (!etc.empty()) bound.emplace_back(kEtc);
  std::vector<std::string> targets = trees.binds;
  for (const auto& [path, target] : trees.symlinks) targets.push_back(path);
  for (const MountPlan& mount : plan.mounts) {
    bound.push_back(mount.inside);
    targets.push_back(mount.inside);
  }
  targets.insert(targets.end(), files.begin(), files.end());
  targets.emplace_back(init::kInitInside);
  std::set<std::string> parents;
  for (const std::string& target : targets) {
    for (auto slash = target.find('/', 1); slash != std::string::npos;
         slash = target.find('/', slash + 1)) {
      const std::string parent = target.substr(0, slash);
      const bool inside = std::any_of(bound.begin(), bound.end(),
                                      [&](const auto& tree) { return covers(tree, parent); });
      if (!inside) parents.insert(parent);
    }
  }
  for (const std::string& parent : parents) options.add({"--perms", "0755", "--dir", parent});
}

void add_system(Options& options, const SystemTrees& trees, const StagedEtc& etc) {
  if (!etc.empty()) options.add({"--ro-bind", init::kStagedEtc, kEtc});
  for (const std::string& path : trees.binds) {
    if (!etc.has(path)) options.add({"--ro-bind", path, path});
  }
  for (const auto& [path, target] : trees.symlinks) {
    if (!etc.has(path)) options.add({"--symlink", target, path});
  }
  for (const std::string& path : trees.masks) options.add({"--ro-bind", init::kStagedEmpty, path});
}

void add_proc(Options& options, const std::vector<std::string>& masks) {
  options.add({"--proc", "/proc"});
  options.add({"--ro-bind", "/proc/sys", "/proc/sys"});
  for (const std::string& path : masks) {
    if (is_directory(path)) {
      options.add({"--perms", "0555", "--size", "4096", "--tmpfs", path, "--remount-ro", path});
    } else {
      options.add({"--ro-bind", init::kStagedEmpty, path});
    }
  }
}

void add_mounts(Options& options, const Plan& plan) {
  std::vector<MountPlan> mounts = plan.mounts;
  std::stable_sort(mounts.begin(), mounts.end(), [](const MountPlan& a, const MountPlan& b) {
    return depth(a.inside) < depth(b.inside);
  });
  for (const MountPlan& mount : mounts) {
    options.add({mount.writable ? "--bind" : "--ro-bind",
                 std::string(init::kStagedMounts) + "/" + mount.name, mount.inside});
  }
}

}  // namespace

StagedEtc stage_etc(const Plan& plan, const SystemTrees& trees,
                    const std::vector<std::string>& files) {
  StagedEtc etc;
  const bool is_target = std::any_of(plan.mounts.begin(), plan.mounts.end(),
                                     [](const auto& mount) { return covers(kEtc, mount.inside); });
  if (is_target) return etc;
  const auto lies_there = [](const std::string& path) {
    return path != kEtc && covers(kEtc, path);
  };
  for (const std::string& path : trees.binds) {
    if (lies_there(path)) etc.binds.push_back(path);
  }
  for (const auto& link : trees.symlinks) {
    if (lies_there(link.first)) etc.symlinks.push_back(link);
  }
  for (const std::string& path : files) {
    const bool inside = std::any_of(etc.binds.begin(), etc.binds.end(),
                                    [&](const auto& tree) { return covers(tree, path); });
    if (lies_there(path) && !inside && !etc.has(path)) etc.files.push_back(path);
  }
  return etc;
}

bool StagedEtc::has(const std::string& path) const {
  const auto holds = [&](const auto& list) {
    return std::find(list.begin(), list.end(), path) != list.end();
  };
  return holds(binds) || holds(files) ||
         std::any_of(symlinks.begin(), symlinks.end(),
                     [&](const auto& link) { return link.first == path; });
}

std::vector<std::string> make_launcher_options(const Plan& plan, const SystemTrees& trees,
                                               const StagedEtc& etc,
                                               const std::vector<std::string>& files,
                                               const std::vector<std::string>& proc_masks) {
  Options options;
  add_namespaces(options, plan);
  options.add({"--bind", init::kStagedTmp, "/tmp"});
  const std::set<std::string> ways = find_ways_through_tmp(plan);
  for (const std::string& way : ways) {
    options.add({"--perms", "0755", "--size", "65536", "--tmpfs", way});
  }
  add_parents(options, plan, trees, etc, files);
  add_system(options, trees, etc);
  add_proc(options, proc_masks);
  options.add({"--dev", "/dev"});
  options.add({"--bind", init::kStagedShm, "/dev/shm"});
  options.add({"--dir", "/var", "--symlink", "/tmp", "/var/tmp"});
  options.add({"--ro-bind", init::kStagedInit, init::kInitInside});
  add_mounts(options, plan);
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (etc.has(files[i])) continue;
    options.add({"--ro-bind", std::string(init::kStagedFiles) + "/" + std::to_string(i), files[i]});
  }
  for (const std::string& way : ways) options.add({"--remount-ro", way});
  options.add({"--remount-ro", "/dev", "--remount-ro", "/"});
  options.add({"--chdir", "/"});
  return options.take();
}

std::vector<std::string> make_launcher_command(const std::string& program) {
  return {program, "--args",          std::to_string(init::kLauncherArgsFd),
          "--",    init::kInitInside, "pid1"};
}

std::vector<std::string> find_proc_masks() {
  std::vector<std::string> found;
  for (const char* path : kProcMasks) {
    struct stat st {};
    if (::stat(path, &st) == 0) found.emplace_back(path);
  }
  return found;
}

}  // namespace cofferdam::orchestrator
