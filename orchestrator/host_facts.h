// HostFacts: what this machine and this user can enforce, gathered once per run by asking.
//
// gather_host_facts touches the machine; everything that decides on the facts is pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace cofferdam::orchestrator {

// One thing that was tried.
struct Probe {
  bool works = false;
  std::string detail;  // what failed, or what was found
};

struct IdRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

struct CgroupFacts {
  int version = 0;                       // 0: none
  std::vector<std::string> controllers;  // that this user can set limits with: pids, memory, cpu
  std::string detail;
};

struct DockerFacts {
  Probe daemon;
  std::string version;
  std::string image_id;  // of the image asked about; empty: not there
  std::vector<std::string> image_volumes;
  std::map<std::string, std::string> image_env;
};

struct HostFacts {
  std::string kernel;  // release
  Probe user_namespaces;
  Probe namespaces;
  Probe fuse;
  Probe nftables_nat;
  Probe seccomp;
  bool apparmor_restricts = false;  // Ubuntu's restriction of user namespaces
  int landlock_abi = 0;
  Probe bwrap;
  std::string bwrap_path;
  CgroupFacts cgroups;
  std::vector<std::string> nameservers;
  DockerFacts docker;

  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::string user_name;
  std::string home;
  std::vector<IdRange> subordinate_ids;  // root's of /etc/subuid
  std::vector<IdRange> taken_ids;        // passwd entries, others' subordinate ranges
};

struct FactsQuery {
  bool docker = false;  // asking the daemon takes time
  std::string image;    // whose id is wanted; empty: none
};

Result<HostFacts> gather_host_facts(const FactsQuery& query);

// One line of `doctor`, and the words of a refused plan.
struct HostCheck {
  enum class State : std::uint8_t { kGood, kMissing, kAbsent };  // kAbsent: used when present
  std::string name;
  State state = State::kMissing;
  bool required = false;  // for the engine asked about
  std::string detail;
  std::string remedy;  // empty when good
};

std::vector<HostCheck> check_host(const HostFacts& facts, std::string_view engine);

// {major, minor} of a release text; {0, 0} when it has none.
std::pair<int, int> kernel_version(std::string_view release);

// A range of 65537 ids for one sandbox of root: 0..65535 inside and one more for the services. The
// first free one of root's subordinate ids, else a slot of the range that systemd's UIDS-GIDS
// document leaves unused (0x70000000-0x7FFFFFFF), chosen by the sandbox's id. `live` are the
// ranges of sandboxes that have not ended.
Result<std::uint32_t> choose_id_range(const HostFacts& facts, std::string_view sandbox_id,
                                      const std::vector<std::uint32_t>& live);

}  // namespace cofferdam::orchestrator
