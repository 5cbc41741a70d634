#include "orchestrator/init/shield.h"

#include <sys/mount.h>

#include <sstream>

#include "common/os/files.h"
#include "orchestrator/init/protocol.h"

namespace cofferdam::init {
namespace {

// proc_pid_mountinfo(5): the fifth field. Escapes do not matter: no tree has a character that needs
// one.
bool has_mounts_below(const std::string& mountinfo, const std::string& tree) {
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string point;
    for (int i = 0; i < 5; ++i) words >> point;
    if (point.starts_with(tree + "/")) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> shield_trees(const std::vector<std::string>& trees) {
  std::vector<std::string> shielded;
  const auto mountinfo = os::read_file("/proc/self/mountinfo");
  if (!mountinfo.ok()) return shielded;
  for (const std::string& tree : trees) {
    if (tree.find_first_of(":,\\ ") != std::string::npos) continue;  // overlayfs's separators
    if (has_mounts_below(*mountinfo, tree)) continue;
    const std::string options = "lowerdir=" + tree + ":" + kStagedNothing;
    if (::mount("overlay", tree.c_str(), "overlay", MS_RDONLY | MS_NOSUID | MS_NODEV,
                options.c_str()) == 0) {
      shielded.push_back(tree);
    }
  }
  return shielded;
}

}  // namespace cofferdam::init
