// Workspace: which directory a sandbox works on, judged before anything is planned.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace cofferdam::orchestrator {

struct WorkspaceQuery {
  std::filesystem::path asked;      // --workspace or the manifest's; empty: found from `directory`
  std::filesystem::path directory;  // the current directory
  std::filesystem::path home;       // the user's HOME
  std::filesystem::path state;      // the state directory
};

struct Workspace {
  std::filesystem::path path;       // absolute, links resolved
  std::filesystem::path directory;  // the current directory when it lies inside, else `path`
  // The common git directory of a linked worktree: a second mount at its own path.
  std::optional<std::filesystem::path> git_directory;
  bool has_git = false;  // it holds a `.git` already
  // Who owns the workspace: root works on another user's project as that user would.
  std::uint32_t owner_uid = 0;
  std::uint32_t owner_gid = 0;
  std::vector<std::string> notes;  // for people
};

// Asked for, else the enclosing git top level (found by its `.git`, git is never run), else the
// current directory. Refused with the reason: `/`, HOME, what contains HOME, system directories,
// what contains or lies in the state directory, another sandbox's mount.
Result<Workspace> find_workspace(const WorkspaceQuery& query);

}  // namespace cofferdam::orchestrator
