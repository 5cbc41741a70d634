// git: the hosts that the user's own configuration sends git to (url.BASE.insteadOf). Pure.
//
// A repository's remotes are never read: its author chose them.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/presets/presets.h"

namespace cofferdam::orchestrator {

struct GitRewrite {
  std::string base;     // what git goes to instead
  std::string instead;  // what repositories name
  bool push_only = false;
};

struct GitConfig {
  std::vector<GitRewrite> rewrites;
  std::string ca_file;
};

// The output of `git config --list -z`.
GitConfig parse_git_config(std::string_view list);
// The files that such a list was read from, made with --show-origin.
std::vector<std::string> origins_of_git_config(std::string_view list);

Result<PresetResult> git_preset(const GitConfig& config, const std::string& certificates,
                                const ResolveHost& resolve);

}  // namespace cofferdam::orchestrator
