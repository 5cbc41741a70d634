// The command line of cofferdam-egressproxy (docs/processes.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "egressproxy/deadlines.h"

namespace cofferdam::egressproxy {

enum class Role : std::uint8_t { kDns, kExplicit, kTransparent };

struct ListenAt {
  Role role = Role::kExplicit;
  policy::IpAddress address;
  std::uint16_t port = 0;
};

struct Options {
  std::string policy_file;
  std::vector<int> gate_fds;
  std::vector<ListenAt> listen;
  int events_fd = -1;
  std::string events_file;  // instead of events_fd, where nobody hands one over
  int ready_fd = -1;
  int liveness_fd = -1;
  int control_fd = -1;
  Deadlines deadlines;
  std::optional<std::uint32_t> uid;
  std::optional<std::uint32_t> gid;
};

// Nothing: the text (help or version) was asked for and printed.
Result<std::optional<Options>> parse_options(int argc, char** argv);

// "ROLE=ADDRESS:PORT" with ROLE dns or explicit.
Result<ListenAt> parse_listen(const std::string& text);

}  // namespace cofferdam::egressproxy
