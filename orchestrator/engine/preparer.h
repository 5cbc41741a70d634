// The supervisor's side of `cofferdam-init prepare`: the process that makes a sandbox's namespaces
// and network, hands over their descriptors, and becomes the launcher.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/os/process.h"
#include "common/os/unique_fd.h"
#include "orchestrator/engine/launcher.h"
#include "orchestrator/engine/services.h"
#include "orchestrator/plan.h"

namespace cofferdam::orchestrator {

struct LaunchRequest {
  std::string program;
  std::vector<std::string> command;  // argv
  std::vector<std::string> options;  // the launcher's, for --args
  std::vector<std::string> files;    // contents, in the order of staging
  std::vector<std::string> paths;    // inside, of the files
  StagedEtc etc;
};

// A launched sandbox: the launcher's process and process 1's pid in our pid namespace.
struct Launched {
  pid_t pid1 = -1;
  os::UniqueFd socket;  // to process 1
};

class Preparer final {
 public:
  // New namespaces; `plan` names mounts, ids and sizes. `shield`: system trees to put a shield
  // over.
  // `groups`: Cgroup::entries().
  static Result<Preparer> start(const Plan& plan, const std::vector<std::string>& shield,
                                const std::vector<os::UniqueFd>& groups, int interrupt);
  // Joins the network namespace of the process behind `pidfd` and mounts on the host at `targets`,
  // named as in `plan`.
  static Result<Preparer> start_join(const Plan& plan, int pidfd,
                                     const std::vector<std::string>& targets, int interrupt);

  // The descriptors for the services; once.
  ServiceFds take_fds() { return std::move(fds_); }

  // Those of the trees that have one.
  const std::vector<std::string>& shielded() const { return shielded_; }

  // Lets prepare execute the launcher, and waits for process 1.
  Result<Launched> launch(const LaunchRequest& request, int interrupt);

  os::ChildProcess& process() { return process_; }
  // What the process wrote on stderr so far; print it escaped.
  std::string complaints() const;

 private:
  Preparer() = default;
  static Result<Preparer> spawn(const std::vector<os::UniqueFd>& groups);
  Status make_namespaces(const Plan& plan, const std::vector<std::string>& shield, int interrupt);
  Status receive_fds(const Plan& plan, int interrupt);

  os::ChildProcess process_;
  os::UniqueFd socket_;
  os::UniqueFd stderr_;
  ServiceFds fds_;
  std::vector<std::string> shielded_;
};

}  // namespace cofferdam::orchestrator
