// The launcher's command line: bubblewrap builds the sandbox's file system and namespaces from what
// prepare staged. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "orchestrator/engine/system_files.h"
#include "orchestrator/plan.h"

namespace cofferdam::orchestrator {

// What of /etc prepare puts together: bound as one, because bubblewrap's time grows with the square
// of its binds. Paths inside; empty where a mount goes to /etc.
struct StagedEtc {
  std::vector<std::string> binds;                             // of the host: files are copied
  std::vector<std::pair<std::string, std::string>> symlinks;  // path → target
  std::vector<std::string> files;                             // of the staged files
  bool empty() const { return binds.empty() && symlinks.empty() && files.empty(); }
  bool has(const std::string& path) const;
};
StagedEtc stage_etc(const Plan& plan, const SystemTrees& trees,
                    const std::vector<std::string>& files);

// The options, in the order in which bubblewrap carries them out, for its --args. `files` are the
// paths inside of the staged files, in the order in which they were staged. `proc_masks` are the
// entries of /proc that exist and are hidden.
std::vector<std::string> make_launcher_options(const Plan& plan, const SystemTrees& trees,
                                               const StagedEtc& etc,
                                               const std::vector<std::string>& files,
                                               const std::vector<std::string>& proc_masks);

// argv of the launcher: what follows --args and what it executes.
std::vector<std::string> make_launcher_command(const std::string& program);

// Entries of /proc that a workload has no business with, those that this kernel has.
std::vector<std::string> find_proc_masks();

}  // namespace cofferdam::orchestrator
