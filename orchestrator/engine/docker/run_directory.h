// The directory below /run/cofferdam that a sandbox's containers bind from: the init, a token, the
// files placed inside and the mount points of fsproxy. It lies on the host as long as the run.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/engine/docker/run_layout.h"

namespace cofferdam::orchestrator::docker {

struct RunContents {
  std::filesystem::path program;         // cofferdam-init
  std::vector<std::string> files;        // contents, in the order of RunLayout::file
  std::vector<std::string> mount_names;  // of RunLayout::mount
};

// Makes it: /run/cofferdam is 0711, the sandbox's own directory 0700, so that no user of the host
// resolves a path through a sandbox's mount. Everything belongs to root.
Status make_run_directory(const RunLayout& layout, const RunContents& contents);

// Unmounts what is mounted below it and removes it. A missing one is fine. Where something cannot
// be unmounted nothing below that is touched, and the error says so.
Status remove_run_directory(const RunLayout& layout);

// The device numbers ("0:57") of the mounts at these paths, from a text of proc_pid_mountinfo(5);
// empty for a path where nothing is mounted. Pure.
std::vector<std::string> mounted_devices(const std::string& mountinfo,
                                         const std::vector<std::string>& paths);

}  // namespace cofferdam::orchestrator::docker
