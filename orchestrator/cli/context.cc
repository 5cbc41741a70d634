// What every command uses: messages, and the sandbox that a selector means.
#include <pwd.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "common/base/escape.h"
#include "orchestrator/cli/commands.h"
#include "orchestrator/cli/surroundings.h"

namespace cofferdam::orchestrator::cli {

int fail(std::string_view message) {
  const std::string line = "cofferdam: " + escape_for_terminal(message, true) + "\n";
  std::fputs(line.c_str(), stderr);
  return kExitFailed;
}

int fail(const Error& error) {
  return fail(error.message());
}

void note(std::string_view text) {
  const std::string line = "cofferdam: " + escape_for_terminal(text) + "\n";
  std::fputs(line.c_str(), stderr);
}

void print_line(std::string_view text) {
  const std::string line = escape_for_terminal(text) + "\n";
  std::fputs(line.c_str(), stdout);
}

void print_json(const Json& value) {
  std::fputs((printable_json(value, 2) + "\n").c_str(), stdout);
}

std::string who_asks() {
  const uid_t uid = ::getuid();
  const passwd* user = ::getpwuid(uid);
  const std::string number = "uid " + std::to_string(uid);
  return user == nullptr ? number : std::string(user->pw_name) + " (" + number + ")";
}

std::filesystem::path user_home() {
  const char* home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? home : "";
}

Result<Workspace> workspace_here(const Context& context, const SandboxStore& store,
                                 const std::filesystem::path& asked) {
  WorkspaceQuery query;
  query.asked = asked;
  query.directory = context.directory;
  query.home = user_home();
  query.state = state_directory(store);
  return find_workspace(query);
}

Result<SandboxRecord> find_sandbox(const Context& context, std::string_view selector) {
  TRY_ASSIGN(const SandboxStore store, SandboxStore::open());
  const auto workspace = workspace_here(context, store, {});
  return store.find(selector, workspace.ok() ? workspace->path : context.directory);
}

}  // namespace cofferdam::orchestrator::cli
