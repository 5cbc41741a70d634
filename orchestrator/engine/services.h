// The two enforcement services of a sandbox: started with the descriptors that they guard, watched,
// and ended. docs/processes.md is the contract.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/log/event_log.h"
#include "common/os/pipes.h"
#include "common/os/process.h"

namespace cofferdam::orchestrator {

struct ServiceFds {
  std::vector<std::pair<std::string, os::UniqueFd>> mounts;  // name, /dev/fuse descriptor
  std::vector<os::UniqueFd> gate;
};

struct ServiceSettings {
  std::filesystem::path fs_policy;
  std::filesystem::path egress_policy;
  // Where egressproxy's control socket is made: `control` in it.
  std::filesystem::path control_directory;
  int events_fd = -1;
  // Ids that egressproxy changes to; only when started by root.
  bool change_ids = false;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
};

class Services final {
 public:
  enum class Which : std::uint8_t { kFsproxy, kEgressproxy };
  static const char* name_of(Which which);

  // Starts both; `fds` are closed here afterwards.
  static Result<Services> start(const ServiceSettings& settings, ServiceFds fds);
  // Until both are ready; once. EINTR when `interrupt` becomes readable.
  Status wait_ready(int interrupt, log::EventLog& events);

  int pidfd(Which which) const { return process(which).pidfd(); }
  bool running(Which which) const { return process(which).running(); }
  void kill(Which which);
  // Asks both to end, waits `patience`, kills what is left, reaps, and records both ends.
  void end(std::chrono::milliseconds patience, log::EventLog& events);
  // Reaps a service that ended by itself: "exit status 1", "signal 9".
  std::string reap(Which which, log::EventLog& events);

 private:
  Services() = default;
  os::ChildProcess& process(Which which) {
    return which == Which::kFsproxy ? fsproxy_ : egressproxy_;
  }
  const os::ChildProcess& process(Which which) const {
    return which == Which::kFsproxy ? fsproxy_ : egressproxy_;
  }
  os::UniqueFd liveness_;  // write end; nobody else holds it
  os::ChildProcess fsproxy_;
  os::ChildProcess egressproxy_;
  os::UniqueFd fsproxy_ready_;
  os::UniqueFd egressproxy_ready_;
};

}  // namespace cofferdam::orchestrator
