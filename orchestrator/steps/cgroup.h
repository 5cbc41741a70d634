// Control groups: the limits of one sandbox, version 1 or 2, as root or where a subtree was
// delegated to the caller.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/os/unique_fd.h"
#include "orchestrator/plan.h"

namespace cofferdam::orchestrator {

// One hierarchy as the caller sees it: where its own group is.
struct CgroupPlace {
  std::filesystem::path directory;  // the caller's own group
  bool unified = false;             // version 2
};

// Pure: controller → place ("pids", "memory", "cpu"; "" is the unified hierarchy) from the texts of
// /proc/self/cgroup and /proc/self/mountinfo.
std::map<std::string, CgroupPlace> parse_cgroup_places(const std::string& cgroup,
                                                       const std::string& mountinfo);

// Names of the limits that were reached in these groups: "pids", "memory".
std::vector<std::string> limit_hits_in(const std::vector<std::filesystem::path>& directories);

class Cgroup final {
 public:
  // Makes the groups that `limits` needs. pids that no group can limit are left out (the caller
  // falls back to RLIMIT_NPROC); memory and cpus that none can limit are an error. `record` hears
  // of each group before it is made, so that somebody finds it whenever this process dies.
  using Record = std::function<Status(const std::filesystem::path& directory)>;
  static Result<Cgroup> create(const LimitsPlan& limits, const std::string& sandbox_id,
                               Record record = {});

  Cgroup() = default;
  Cgroup(Cgroup&&) noexcept = default;
  Cgroup& operator=(Cgroup&&) noexcept = default;

  // Descriptors for SpawnOptions::groups: who is started with them is in the groups from the first
  // instruction on. A process that moves itself needs no look at all threads of the machine
  // (version 1), which takes 10 ms and more.
  Result<std::vector<os::UniqueFd>> entries() const;
  bool limits_pids() const { return limits_pids_; }
  std::vector<std::string> directories() const;
  std::vector<std::string> hits() const { return limit_hits_in(directories_); }
  // Kills what is left (version 2) and removes the groups; waits at most five seconds for the last
  // processes to be gone.
  void remove();

 private:
  Status use(const std::map<std::string, CgroupPlace>& places, const std::string& controller,
             const std::string& sandbox_id,
             const std::vector<std::pair<std::string, std::string>>& version1,
             const std::vector<std::pair<std::string, std::string>>& version2);
  Record record_;
  std::vector<std::filesystem::path> directories_;
  bool limits_pids_ = false;
};

}  // namespace cofferdam::orchestrator
