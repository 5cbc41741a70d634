// Plan: everything that will be done for one run, decided before anything is done.
//
// make_plan is pure: manifest + host facts in, plan or refusal out. `run --dry-run` prints
// `lines`. Engines and steps read the plan and decide nothing.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/json_text.h"

namespace cofferdam::orchestrator {

// One FUSE mount that the workload sees.
struct MountPlan {
  std::string name;                  // unique: workspace, home, gitdir, opt, …
  std::string inside;                // absolute path inside
  std::optional<std::string> lower;  // absolute path outside; none: starts empty
  std::optional<std::string> layer;  // layer directory; none: read only
  bool writable = false;
};

// Who the workload is. `range_base` is only set when started by root: ids 0..65535 of the
// sandbox's outer user namespace are range_base.. outside, so that kernel uid 0 is never inside.
struct IdPlan {
  std::uint32_t caller_uid = 0;
  std::uint32_t caller_gid = 0;
  std::optional<std::uint32_t> range_base;
  std::uint32_t inside_uid = 0;  // what the workload sees as its own: the caller's
  std::uint32_t inside_gid = 0;
  std::uint32_t service_uid = 0;  // egressproxy's, when started by root; unused otherwise

  // Started by root: an unused range of 65537 ids, the last one for egressproxy.
  void take_range(std::uint32_t base) {
    constexpr std::uint32_t kMappedInside = 65536;
    range_base = base;
    service_uid = base + kMappedInside;
  }
};

struct LimitsPlan {
  std::optional<std::uint32_t> pids;
  std::optional<std::uint64_t> memory_bytes;
  std::optional<double> cpus;
  std::optional<std::chrono::milliseconds> timeout;
  std::optional<std::chrono::milliseconds> idle;  // of a kept sandbox without a command
  std::chrono::milliseconds grace{5000};
  std::uint64_t tmp_bytes = 1ULL << 30U;
  bool tmp_exec = true;
  std::uint64_t shm_bytes = 64ULL << 20U;
  std::optional<std::uint64_t> output_bytes;  // of stdout and stderr together
  std::optional<std::uint64_t> open_files;    // of one process
  std::optional<std::uint64_t> file_size;     // bytes of one file

  // As events tell them; null: none.
  Json to_json() const {
    const auto told = [](const auto& limit) { return limit ? Json(*limit) : Json(); };
    return {
        {"pids", told(pids)},           {"memory", told(memory_bytes)},
        {"cpus", told(cpus)},           {"timeout_ms", timeout ? Json(timeout->count()) : Json()},
        {"output", told(output_bytes)}, {"open_files", told(open_files)},
        {"file_size", told(file_size)}};
  }
};

struct DockerPlan {
  std::string image;                 // as asked for
  std::string image_id;              // sha256:…, what is run
  std::vector<std::string> volumes;  // that the image declares: sized tmpfs inside
};

// A value for named commands. It is in no other part of the plan, and nothing stores it.
struct SecretPlan {
  std::string name;
  std::string value;
  bool as_file = false;               // /run/secrets/NAME, while such a command is the main one
  std::vector<std::string> commands;  // argv[0] of those that get it
  bool is_for(const std::string& program) const {
    return std::find(commands.begin(), commands.end(), program) != commands.end();
  }
  // As a file it is there while a command that it is for, or none yet, is the main one.
  bool is_placed_for(const std::vector<std::string>& argv) const {
    return as_file && (argv.empty() || is_for(argv.front()));
  }
  std::string path() const { return "/run/secrets/" + name; }
};

// One life of the sandbox before that of the workload: a command with rights of its own.
struct PhasePlan {
  std::string name;
  std::vector<std::string> argv;
  std::map<std::string, std::string> env;
  std::map<std::string, std::string> files;
  Json egress_policy;
  std::optional<std::chrono::milliseconds> timeout;
  bool stop_on_failure = true;
};

struct PlanLine {
  std::string topic;  // workspace, network, rule, preset, limit, hide, env, engine, note
  std::string text;
};

struct Plan {
  std::string sandbox_id;
  std::string sandbox_name;
  std::string operation_id;
  std::string manifest_digest;  // sha256:…
  std::string engine;           // native | docker
  std::string workspace;        // absolute, same inside and outside
  std::string directory;        // the current directory inside
  std::string home;             // HOME inside
  std::string user_name;
  std::string hostname;
  std::vector<MountPlan> mounts;
  Json fs_policy;      // docs/processes.md; `owner.shown_*` is filled in by the engine
  Json egress_policy;  // docs/processes.md
  std::vector<std::string> argv;
  std::map<std::string, std::string> env;
  std::map<std::string, std::string> own_env;  // of argv alone, over env; never kept
  // Read-only copies placed inside, path → content (0444): CA bundles and the like, for /etc and
  // HOME.
  std::map<std::string, std::string> files;
  std::vector<SecretPlan> secrets;
  std::vector<PhasePlan> phases;
  IdPlan ids;
  LimitsPlan limits;
  std::string seccomp = "default";       // default | strict
  std::vector<std::string> executables;  // that may be executed, paths inside; empty: everything
  std::optional<DockerPlan> docker;
  bool interactive = false;     // -i
  bool terminal = false;        // -t
  bool keep = false;            // -d: lives until it is stopped, also without a command
  Json trace = Json::object();  // docs/events.md: the trace keys of an operation
  std::vector<PlanLine> lines;
};

}  // namespace cofferdam::orchestrator
