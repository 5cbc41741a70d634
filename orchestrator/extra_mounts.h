// Further mounts of a manifest: what their sources are on this machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/manifest/manifest.h"

namespace cofferdam::orchestrator {

// Every source is a directory. One that is a link is an error, unless the mount follows links: then
// it becomes what the link leads to.
Status settle_mounts(Manifest* manifest);

// Pure: whether a pattern (gitignore(5)) is meant from a root, and not anywhere below it.
bool names_a_place(std::string_view pattern);

// The directories on which other file systems are mounted below the sources of recursive mounts: a
// layer never crosses into another file system, so each becomes a mount of its own.
Result<std::vector<ExtraMount>> find_submounts(const Manifest& manifest);

// Pure: the mount points below `directory` in a text of proc_pid_mountinfo(5), outermost first,
// each once.
std::vector<std::string> mount_points_below(std::string_view mountinfo, std::string_view directory);

}  // namespace cofferdam::orchestrator
