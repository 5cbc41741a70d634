// A directory with HEAD, objects and refs is a repository to git, wherever it lies, and its config
// names commands that git runs. None is ever made, completed or changed by a merge.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/changes/merge.h"

namespace cofferdam::orchestrator::changes {

// Whether these names make a directory a repository for git (setup.c, is_git_directory): HEAD with
// objects and refs, or HEAD with commondir. Letters fold.
bool is_repository_listing(const std::set<std::string>& names);

// Turns every taken item that lies in, or makes, a directory which would be a repository after the
// merge into a refused one.
Status refuse_bare_repositories(int workspace, std::vector<MergeItem>& items);

}  // namespace cofferdam::orchestrator::changes
