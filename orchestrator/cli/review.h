// What diff, export and merge share: the sandbox, its paths, and where they print.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/cli/commands.h"

namespace cofferdam::orchestrator::cli {

// PATH arguments as paths of the sandbox's workspace: relative to the current directory when that
// lies in the workspace, else to the workspace.
Result<std::vector<std::string>> workspace_paths(const Context& context,
                                                 const SandboxRecord& sandbox,
                                                 const std::vector<std::string>& arguments);

// `text` of a review to stdout or stderr, secrets redacted; an exit status, 0 when it was written.
int show(const SandboxRecord& sandbox, std::string_view text, std::FILE* out);
// As note(), secrets redacted.
void note_of(const SandboxRecord& sandbox, std::string_view text);

// A line on stderr when the sandbox's workload may still be writing.
void warn_if_running(const SandboxRecord& sandbox);

// Lines on stderr for the secrets that a review of this sandbox cannot find.
void warn_of_unknown_secrets(const SandboxRecord& sandbox);

// The sandbox, which must have ended, with its lock. `why` follows "NAME is running: ".
Result<OwnedSandbox> own_ended(const SandboxRecord& sandbox, const std::string& why);

// Bytes to stdout, all of them.
Status write_stdout(std::string_view bytes);

}  // namespace cofferdam::orchestrator::cli
