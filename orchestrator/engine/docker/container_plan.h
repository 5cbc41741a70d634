// ContainerPlan: everything that is asked of Docker for one container, and what is read back
// afterwards. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "orchestrator/engine/docker/run_layout.h"
#include "orchestrator/plan.h"

namespace cofferdam::orchestrator::docker {

struct BindPlan {
  std::string source;  // on the host
  std::string target;
  bool writable = false;
  bool fuse = false;  // a mount of fsproxy's; it is read only by itself

  // For others Docker makes it so. A read-only bind of Docker's loses nosuid and nodev.
  bool read_only_by_docker() const { return !writable && !fuse; }
};

struct TmpfsPlan {
  std::string target;
  std::uint64_t bytes = 0;
  bool exec = true;
};

struct ContainerPlan {
  std::string name;
  std::map<std::string, std::string> labels;
  std::string image_id;
  std::vector<std::string> command;  // argv of process 1, the image's own is never run
  std::uint32_t uid = 0;             // in the host's user namespace; never 0
  std::uint32_t gid = 0;
  std::string network;   // "none", or "container:<id>"
  std::string hostname;  // empty with container:<id>: it is the other one's
  std::map<std::string, std::string> sysctls;
  std::vector<BindPlan> binds;
  std::vector<TmpfsPlan> tmpfs;
  std::uint64_t shm_bytes = 1U << 20U;
  std::vector<std::string> masked_paths;    // exist on this kernel
  std::vector<std::string> readonly_paths;  // the same
  std::optional<std::uint32_t> pids;
  std::optional<std::uint64_t> memory_bytes;
  std::optional<double> cpus;
  Json seccomp;  // Docker's form
};

// Who a sandbox's containers belong to.
struct ContainerOwner {
  std::string sandbox;   // id
  std::string instance;  // which state directory
  std::string boot_id;
};
std::map<std::string, std::string> make_labels(const ContainerOwner& owner, const char* role);
inline constexpr char kSandboxLabel[] = "dev.cofferdam.sandbox";
inline constexpr char kInstanceLabel[] = "dev.cofferdam.instance";
inline constexpr char kBootLabel[] = "dev.cofferdam.boot-id";
inline constexpr char kRoleLabel[] = "dev.cofferdam.role";

// What of /proc and /sys this kernel has and a workload does not see or change.
struct KernelPaths {
  std::vector<std::string> masked;
  std::vector<std::string> readonly_paths;
  bool ipv6 = false;
};

// The ids of the workload's processes, on the host and inside alike: of the sandbox's unused range.
Result<std::uint32_t> workload_uid(const Plan& plan);
Result<std::uint32_t> workload_gid(const Plan& plan);

// The container that holds the network namespace.
Result<ContainerPlan> make_pause_plan(const Plan& plan, const ContainerOwner& owner,
                                      const RunLayout& layout, const std::string& image_id,
                                      const KernelPaths& paths, const Json& seccomp);

// The workload's. `files` are the paths inside of the layout's files, in their order.
Result<ContainerPlan> make_workload_plan(const Plan& plan, const ContainerOwner& owner,
                                         const RunLayout& layout, const std::string& pause_id,
                                         const std::vector<std::string>& files,
                                         const KernelPaths& paths, const Json& seccomp);

// The body of POST /containers/create.
Json make_create_request(const ContainerPlan& container);

}  // namespace cofferdam::orchestrator::docker
