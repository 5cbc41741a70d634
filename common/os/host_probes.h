// What this kernel lets this user do, found out by doing it in a child that is thrown away.
//
// To be called before the process has threads (it forks).
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"

namespace cofferdam::os {

struct ProbeResult {
  std::string name;      // user_namespaces, namespaces, fuse, nftables_nat
  int error_number = 0;  // 0: it worked
  std::string step;      // the act that failed
};

// In one child: a user namespace with the caller mapped; mount, net, pid, ipc and uts namespaces
// in it; a FUSE mount in those; an nftables nat chain with a redirect in the network namespace.
// What depends on a failed probe fails with it. Always four results, in this order.
Result<std::vector<ProbeResult>> probe_sandbox_kernel();

// The version of Landlock, 0 where there is none (landlock_create_ruleset(2)).
int landlock_abi();

// seccomp filters with user notification (seccomp(2), SECCOMP_GET_ACTION_AVAIL).
bool has_seccomp_notify();

// "6.1.0-18-amd64", from uname(2).
std::string kernel_release();

// Whether `path` lies on a FUSE file system (statfs(2)).
Result<bool> is_on_fuse(const std::string& path);

}  // namespace cofferdam::os
