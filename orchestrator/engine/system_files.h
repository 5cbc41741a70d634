// What of the host's system a native sandbox sees, and the files of /etc that are its own.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/plan.h"

namespace cofferdam::orchestrator {

struct SystemTrees {
  std::vector<std::string> binds;                             // read-only, same path inside
  std::vector<std::pair<std::string, std::string>> symlinks;  // path inside → target
  std::vector<std::string> masks;                             // sockets and FIFOs below the binds

  // Pure: the binds that are worth a shield (init/shield.h): large, and directories.
  std::vector<std::string> large() const;
};

// Looks at the host: root-owned /usr, /bin, /sbin, /lib* and named entries of /etc that exist.
Result<SystemTrees> find_system_trees();

// Masks every socket and FIFO below the binds, since a read-only bind does not stop connect(2); but
// not below those in `shielded`, where they lead nowhere.
void find_masks(const std::vector<std::string>& shielded, SystemTrees* trees);

// /etc/resolv.conf, hosts, nsswitch.conf, passwd, group, hostname of the sandbox. Pure.
std::map<std::string, std::string> make_etc_files(const Plan& plan);

}  // namespace cofferdam::orchestrator
