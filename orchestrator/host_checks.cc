#include "orchestrator/host_facts.h"

namespace cofferdam::orchestrator {
namespace {

using State = HostCheck::State;

HostCheck required(std::string name, const Probe& probe, std::string remedy) {
  HostCheck check;
  check.name = std::move(name);
  check.required = true;
  check.state = probe.works ? State::kGood : State::kMissing;
  check.detail = probe.detail.empty() ? "works" : probe.detail;
  if (!probe.works) check.remedy = std::move(remedy);
  return check;
}

HostCheck optional(std::string name, bool present, std::string detail, std::string remedy) {
  HostCheck check;
  check.name = std::move(name);
  check.state = present ? State::kGood : State::kAbsent;
  check.detail = std::move(detail);
  if (!present) check.remedy = std::move(remedy);
  return check;
}

std::string namespaces_remedy(const HostFacts& facts) {
  if (facts.apparmor_restricts) {
    return "AppArmor restricts user namespaces here: install the profile that comes with the "
           "package (packaging/apparmor), or as root: sysctl "
           "kernel.apparmor_restrict_unprivileged_userns=0";
  }
  return "as root: sysctl user.max_user_namespaces=15000 and, where it exists, sysctl "
         "kernel.unprivileged_userns_clone=1; inside a container, allow unshare and mount";
}

std::string join(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

bool has(const CgroupFacts& cgroups, std::string_view controller) {
  for (const std::string& have : cgroups.controllers) {
    if (have == controller) return true;
  }
  return false;
}

void add_cgroups(std::vector<HostCheck>* checks, const HostFacts& facts) {
  const std::string remedy =
      facts.uid == 0 ? "mount cgroup2 at /sys/fs/cgroup"
                     : "run below a delegated unit: systemd-run --user --scope -p Delegate=yes "
                       "cofferdam run …";
  checks->push_back(optional("limit pids", true,
                             has(facts.cgroups, "pids") ? "by cgroup " + facts.cgroups.detail
                                                        : "by RLIMIT_NPROC of the user namespace",
                             ""));
  for (const char* controller : {"memory", "cpu"}) {
    const bool present = has(facts.cgroups, controller);
    checks->push_back(optional(
        std::string("limit ") + controller, present,
        present ? "by cgroup " + facts.cgroups.detail : "not available: " + facts.cgroups.detail,
        remedy));
  }
}

}  // namespace

std::vector<HostCheck> check_host(const HostFacts& facts, std::string_view engine) {
  std::vector<HostCheck> checks;
  const auto [major, minor] = kernel_version(facts.kernel);
  checks.push_back(required("kernel", {major > 5 || (major == 5 && minor >= 15), facts.kernel},
                            "Linux 5.15 or newer is needed"));
  if (engine == "native") {
    checks.push_back(required("user namespaces", facts.user_namespaces, namespaces_remedy(facts)));
    checks.push_back(required("mount, net, pid, ipc, uts namespaces", facts.namespaces,
                              namespaces_remedy(facts)));
    checks.push_back(
        required("bubblewrap", facts.bwrap, "0.8 or newer is needed: apt install bubblewrap"));
  }
  checks.push_back(required("FUSE", facts.fuse,
                            "as root: modprobe fuse && chmod 0666 /dev/fuse (and keep it so with "
                            "a udev rule); inside a container, pass --device /dev/fuse"));
  checks.push_back(
      required("nftables NAT", facts.nftables_nat, "as root: modprobe nft_redir nft_chain_nat"));
  checks.push_back(required("seccomp", facts.seccomp, "a kernel with CONFIG_SECCOMP_FILTER"));
  const bool nameservers = !facts.nameservers.empty();
  checks.push_back(optional("nameservers", nameservers,
                            nameservers ? join(facts.nameservers) : "none in /etc/resolv.conf",
                            "name one in /etc/resolv.conf or in network.resolver.servers"));
  checks.push_back(optional("Landlock", facts.landlock_abi >= 2,
                            "ABI " + std::to_string(facts.landlock_abi),
                            "a kernel with Landlock (lsm=landlock,…), ABI 2 or newer"));
  add_cgroups(&checks, facts);
  if (engine == "docker") {
    checks.push_back(required("docker", facts.docker.daemon, "start the Docker daemon"));
  } else {
    checks.push_back(
        optional("docker", facts.docker.daemon.works,
                 facts.docker.daemon.detail.empty() ? "not asked" : facts.docker.daemon.detail,
                 "only --engine docker needs it: apt install docker.io"));
  }
  return checks;
}

}  // namespace cofferdam::orchestrator
