#include "orchestrator/engine/docker/container_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "orchestrator/init/protocol.h"

namespace cofferdam::orchestrator::docker {
namespace {

constexpr std::uint64_t kRunBytes = 16ULL << 20U;
constexpr std::uint64_t kVolumeBytes = 1ULL << 30U;
constexpr std::uint64_t kBytesPerInode = 4096;
constexpr std::uint64_t kFewestInodes = 1024;
constexpr std::uint32_t kPauseOffset = 65534;  // of the sandbox's range; the workload is not it
// The runtime starts process 1 with a dozen threads of its own, which count.
constexpr std::uint32_t kFewestPids = 16;
constexpr std::uint32_t kPausePids = 64;

std::size_t depth(const std::string& path) {
  return static_cast<std::size_t>(std::count(path.begin(), path.end(), '/'));
}

bool lies_in(const std::string& path, const std::string& directory) {
  return path == directory || (path.starts_with(directory) && path.size() > directory.size() &&
                               (directory.back() == '/' || path[directory.size()] == '/'));
}

Result<std::uint32_t> range_base(const Plan& plan) {
  constexpr std::uint32_t kFirstUnused = 65536;  // below are people and services
  if (!plan.ids.range_base || *plan.ids.range_base < kFirstUnused) {
    return Error("engine docker: no unused range of user ids was planned");
  }
  return *plan.ids.range_base;
}

// What every container of ours has.
ContainerPlan make_common(const ContainerOwner& owner, const char* role, const KernelPaths& paths,
                          const Json& seccomp) {
  ContainerPlan container;
  container.labels = make_labels(owner, role);
  container.masked_paths = paths.masked;
  container.readonly_paths = paths.readonly_paths;
  container.seccomp = seccomp;
  return container;
}

// An image's VOLUMEs become sized tmpfs: a volume of Docker's would outlive the sandbox.
Status add_volumes(const Plan& plan, ContainerPlan* container) {
  const auto taken = [&](const std::string& path) {
    const auto same = [&](const auto& item) { return item.target == path; };
    return std::any_of(container->binds.begin(), container->binds.end(), same) ||
           std::any_of(container->tmpfs.begin(), container->tmpfs.end(), same);
  };
  for (const std::string& declared : plan.docker->volumes) {
    std::string path = std::filesystem::path(declared).lexically_normal().string();
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    if (path.empty() || path.front() != '/' || path == "/") {
      return Error("the image declares a VOLUME at " + declared + ", which cannot be");
    }
    if (taken(path)) continue;
    for (const MountPlan& mount : plan.mounts) {
      if (mount.lower && lies_in(path, mount.inside)) {
        return Error("the image declares a VOLUME at " + path + ", inside " + mount.inside +
                     ": it would hide what is there. Remedy: another image, or the workspace at "
                     "another path");
      }
    }
    for (const char* own : {"/proc", "/sys", "/dev", "/run/cofferdam"}) {
      if (lies_in(path, own)) {
        return Error("the image declares a VOLUME at " + path + ". Remedy: another image");
      }
    }
    container->tmpfs.push_back({path, kVolumeBytes, true});
  }
  return {};
}

std::string tmpfs_options(const TmpfsPlan& tmpfs) {
  const std::uint64_t inodes = std::max(kFewestInodes, tmpfs.bytes / kBytesPerInode);
  return std::string("rw,nosuid,nodev,") + (tmpfs.exec ? "exec" : "noexec") +
         ",mode=1777,size=" + std::to_string(tmpfs.bytes) + ",nr_inodes=" + std::to_string(inodes);
}

Json make_host_config(const ContainerPlan& container) {
  Json mounts = Json::array();
  for (const BindPlan& bind : container.binds) {
    mounts.push_back({{"Type", "bind"},
                      {"Source", bind.source},
                      {"Target", bind.target},
                      {"ReadOnly", bind.read_only_by_docker()},
                      {"BindOptions", {{"Propagation", "rprivate"}, {"NonRecursive", true}}}});
  }
  Json tmpfs = Json::object();
  for (const TmpfsPlan& item : container.tmpfs) tmpfs[item.target] = tmpfs_options(item);
  Json host{{"NetworkMode", container.network},
            {"Sysctls", container.sysctls},
            {"CapDrop", Json::array({"ALL"})},
            {"SecurityOpt",
             Json::array({"no-new-privileges", "seccomp=" + canonical_json(container.seccomp)})},
            {"ReadonlyRootfs", true},
            {"Privileged", false},
            {"Mounts", mounts},
            {"Tmpfs", tmpfs},
            {"ShmSize", container.shm_bytes},
            {"IpcMode", "private"},
            {"CgroupnsMode", "private"},
            {"UsernsMode", "host"},
            {"MaskedPaths", container.masked_paths},
            {"ReadonlyPaths", container.readonly_paths},
            {"LogConfig", {{"Type", "none"}, {"Config", Json::object()}}},
            {"RestartPolicy", {{"Name", "no"}}},
            {"AutoRemove", false},
            {"Init", false},
            {"Runtime", "runc"}};
  if (container.pids) host["PidsLimit"] = *container.pids;
  if (container.memory_bytes) {
    host["Memory"] = *container.memory_bytes;
    host["MemorySwap"] = *container.memory_bytes;
  }
  if (container.cpus) host["NanoCpus"] = std::llround(*container.cpus * 1e9);
  return host;
}

}  // namespace

std::map<std::string, std::string> make_labels(const ContainerOwner& owner, const char* role) {
  return {{kSandboxLabel, owner.sandbox},
          {kInstanceLabel, owner.instance},
          {kBootLabel, owner.boot_id},
          {kRoleLabel, role}};
}

Result<std::uint32_t> workload_uid(const Plan& plan) {
  TRY_ASSIGN(const std::uint32_t base, range_base(plan));
  return base + plan.ids.inside_uid;
}

Result<std::uint32_t> workload_gid(const Plan& plan) {
  TRY_ASSIGN(const std::uint32_t base, range_base(plan));
  return base + plan.ids.inside_gid;
}

Result<ContainerPlan> make_pause_plan(const Plan& plan, const ContainerOwner& owner,
                                      const RunLayout& layout, const std::string& image_id,
                                      const KernelPaths& paths, const Json& seccomp) {
  TRY_ASSIGN(const std::uint32_t base, range_base(plan));
  ContainerPlan container = make_common(owner, "pause", paths, seccomp);
  container.name = "cofferdam-" + plan.sandbox_id + "-pause";
  container.image_id = image_id;
  container.command = {"/init", "pause"};
  container.uid = container.gid = base + kPauseOffset;
  container.network = "none";
  container.hostname = plan.hostname;
  container.sysctls["net.ipv4.ip_unprivileged_port_start"] = "0";
  if (paths.ipv6) container.sysctls["net.ipv6.conf.all.disable_ipv6"] = "0";
  container.binds = {{layout.token(), "/token", false, false}};
  container.pids = kPausePids;
  return container;
}

Result<ContainerPlan> make_workload_plan(const Plan& plan, const ContainerOwner& owner,
                                         const RunLayout& layout, const std::string& pause_id,
                                         const std::vector<std::string>& files,
                                         const KernelPaths& paths, const Json& seccomp) {
  if (plan.limits.pids && *plan.limits.pids < kFewestPids) {
    return Error("engine docker: its runtime needs at least " + std::to_string(kFewestPids) +
                 " processes. Remedy: --pids " + std::to_string(kFewestPids) + " or more");
  }
  ContainerPlan container = make_common(owner, "workload", paths, seccomp);
  container.name = "cofferdam-" + plan.sandbox_id;
  container.image_id = plan.docker->image_id;
  container.command = {init::kInitInside, "pid1", "--self-socket"};
  TRY_ASSIGN(container.uid, workload_uid(plan));
  TRY_ASSIGN(container.gid, workload_gid(plan));
  container.network = "container:" + pause_id;
  container.binds = {{layout.init(), init::kInitInside, false, false}};
  for (const MountPlan& mount : plan.mounts) {
    container.binds.push_back({layout.mount(mount.name), mount.inside, mount.writable, true});
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    container.binds.push_back({layout.file(i), files[i], false, false});
  }
  container.tmpfs = {{"/tmp", plan.limits.tmp_bytes, plan.limits.tmp_exec},
                     {"/var/tmp", plan.limits.tmp_bytes, plan.limits.tmp_exec},
                     {"/run", kRunBytes, false}};
  // A mount of the plan wins over ours.
  std::erase_if(container.tmpfs, [&](const TmpfsPlan& item) {
    return std::any_of(plan.mounts.begin(), plan.mounts.end(),
                       [&](const MountPlan& mount) { return mount.inside == item.target; });
  });
  TRY(add_volumes(plan, &container));
  std::stable_sort(
      container.binds.begin(), container.binds.end(),
      [](const BindPlan& a, const BindPlan& b) { return depth(a.target) < depth(b.target); });
  container.shm_bytes = plan.limits.shm_bytes;
  container.pids = plan.limits.pids;
  container.memory_bytes = plan.limits.memory_bytes;
  container.cpus = plan.limits.cpus;
  return container;
}

Json make_create_request(const ContainerPlan& container) {
  const std::string user = std::to_string(container.uid) + ":" + std::to_string(container.gid);
  Json request{{"Image", container.image_id},
               {"Entrypoint", container.command},
               {"Cmd", Json::array()},
               {"User", user},
               {"WorkingDir", "/"},
               {"Env", Json::array()},
               {"Labels", container.labels},
               {"Tty", false},
               {"OpenStdin", false},
               {"AttachStdin", false},
               {"AttachStdout", false},
               {"AttachStderr", false},
               // An image's health check would be run beside process 1, without its filter.
               {"Healthcheck", {{"Test", Json::array({"NONE"})}}},
               {"HostConfig", make_host_config(container)}};
  if (!container.hostname.empty()) request["Hostname"] = container.hostname;
  return request;
}

}  // namespace cofferdam::orchestrator::docker
