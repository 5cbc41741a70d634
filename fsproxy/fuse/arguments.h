// The command line of cofferdam-fsproxy (docs/processes.md).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"

namespace cofferdam::fsproxy {

struct Arguments {
  std::string policy_file;
  int events_fd = -1;
  int ready_fd = -1;
  int liveness_fd = -1;
  int control_fd = -1;                              // -1: none
  bool passthrough = true;                          // where it can be had
  std::vector<std::pair<std::string, int>> mounts;  // name, /dev/fuse descriptor
};

Result<Arguments> parse_arguments(const std::vector<std::string>& args);

}  // namespace cofferdam::fsproxy
