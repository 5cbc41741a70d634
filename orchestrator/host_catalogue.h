// The catalogue of capabilities: what sandboxes of this machine can have, each with its remedy. The
// required ones are those of check_host; their words are the same.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/host_facts.h"

namespace cofferdam::orchestrator {

// What only `doctor` asks.
struct HostExtras {
  Probe whiteouts;  // on the file system of the state directory
  Probe attributes;
  Probe reflink;
  std::uint64_t inotify_watches = 0;
  std::uint64_t inotify_instances = 0;
  std::vector<std::string> runtimes;  // of the Docker daemon
  Probe passthrough;                  // FUSE passthrough, as fsproxy says
  Probe reader;                       // cofferdam-reader is there, for merge --commits
};

// `state` is the directory of the sandboxes' layers; it exists. In cli/host_extras.cc: it starts
// programs and asks the Docker daemon.
HostExtras gather_host_extras(const std::filesystem::path& state, const HostFacts& facts);

struct Capability {
  std::string group;  // isolation | network | environment | limits | changes | files | kernel
  HostCheck check;
};

// Pure. In the order in which they are shown.
std::vector<Capability> capabilities_of(const HostFacts& facts, const HostExtras& extras);

}  // namespace cofferdam::orchestrator
