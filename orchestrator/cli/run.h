// `cofferdam run`: from the line to a plan, and from the plan to an ended sandbox.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/cli/commands.h"
#include "orchestrator/make_plan.h"
#include "orchestrator/sandbox_store.h"

namespace cofferdam::orchestrator::cli {

// The line as it was written.
struct RunOptions {
  std::string manifest;
  std::string mode;
  std::string workspace;
  std::vector<std::string> allow;
  std::vector<std::string> presets;
  std::vector<std::string> hide;
  std::vector<std::string> readonly;
  std::vector<std::string> env;
  std::string engine;
  std::string image;
  std::string runtime;
  std::string name;
  std::string timeout;
  std::string memory;
  std::string pids;
  std::string cpus;
  std::string merge;  // ask | auto | never; empty: by the terminal
  std::string parent;
  bool dry_run = false;
  bool remove = false;
  bool detach = false;
  bool ask = false;
  bool json = false;
  bool interactive = false;
  bool terminal = false;
};

// Everything that is found out before the plan is made: workspace, manifest, presets, facts.
struct PreparedRun {
  Plan plan;
  Manifest manifest;  // effective, what is stored
  std::map<std::string, std::string> secret_env;
};
Result<PreparedRun> prepare_run(const Context& context, const RunOptions& options,
                                const SandboxStore& store);

// The id ranges (started by root) of sandboxes that have not ended.
Result<std::vector<std::uint32_t>> live_ranges(const SandboxStore& store);
// One --env of the line, NAME=VALUE or NAME for the caller's own value, into `carried`.
Status carry_variable(const std::string& text, std::map<std::string, std::string>* carried);

// The command line's part of the manifest; the carried variables go into `carried`.
Status apply_options(const RunOptions& options, Manifest* manifest,
                     std::map<std::string, std::string>* carried);

// Starts a sandbox that lives until it is stopped, and prints its id when it runs.
int carry_out_detached(const RunOptions& options, const SandboxStore& store,
                       const PreparedRun& run);

// Runs the plan, prints the summary, merges and removes as asked; the exit status.
int carry_out_run(const Context& context, const RunOptions& options, const SandboxStore& store,
                  const PreparedRun& run);

}  // namespace cofferdam::orchestrator::cli
