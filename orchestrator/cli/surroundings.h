// Where a command stands: the state directory, the workspace of the current directory; printing.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "common/base/json_text.h"
#include "orchestrator/cli/commands.h"
#include "orchestrator/workspace.h"

namespace cofferdam::orchestrator::cli {

// …/cofferdam, above the store's sandboxes/.
inline std::filesystem::path state_directory(const SandboxStore& store) {
  return store.root().parent_path();
}

// HOME of the environment, empty without one.
std::filesystem::path user_home();

Result<Workspace> workspace_here(const Context& context, const SandboxStore& store,
                                 const std::filesystem::path& asked);

// Who gives a right: "anna (uid 1000)".
std::string who_asks();

// "cofferdam: <text>" on stderr, escaped: for people, not an error.
void note(std::string_view text);
// One escaped line on stdout.
void print_line(std::string_view text);
// Indented JSON on stdout.
void print_json(const Json& value);

}  // namespace cofferdam::orchestrator::cli
