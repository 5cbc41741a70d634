// The commands of `cofferdam`: one function per command adds its subcommand to the parser.
//
// A command stores its options in state that it owns (a shared_ptr captured by its action) and,
// when chosen, sets Context::action; main runs the action after the whole line has been parsed.
// An action returns the process's exit status (DESIGN section 7). Single thread.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/sandbox_store.h"

namespace cofferdam::orchestrator::cli {

inline constexpr int kExitFailed = 125;  // Cofferdam failed, refused or (run, exec) was misused
inline constexpr int kExitUsage = 2;     // misuse of every other command

struct Context {
  std::function<int()> action;
  std::vector<std::string> command;  // what follows the first "--" of run and exec
  std::filesystem::path directory;   // the current directory, absolute, links resolved
};

// Prints "cofferdam: <message>" on stderr, escaped (lines kept), and returns kExitFailed.
int fail(std::string_view message);
int fail(const Error& error);

// The sandbox that the user's selector S means, seen from the current directory's workspace.
Result<SandboxRecord> find_sandbox(const Context& context, std::string_view selector);

void add_run(CLI::App& app, Context& context);
void add_exec(CLI::App& app, Context& context);
void add_stop(CLI::App& app, Context& context);
void add_prune(CLI::App& app, Context& context);
void add_verify(CLI::App& app, Context& context);
void add_top(CLI::App& app, Context& context);
void add_completion(CLI::App& app, Context& context);
void add_ps(CLI::App& app, Context& context);
void add_log(CLI::App& app, Context& context);
void add_why(CLI::App& app, Context& context);
void add_rm(CLI::App& app, Context& context);
void add_reap(CLI::App& app, Context& context);
void add_doctor(CLI::App& app, Context& context);
void add_grant(CLI::App& app, Context& context);
void add_mode(CLI::App& app, Context& context);
void add_manifest_learn(CLI::App& manifest, Context& context);  // below add_manifest's command
void add_manifest(CLI::App& app, Context& context);
void add_version(CLI::App& app, Context& context);
// Commands of later versions: listed in --help, refused with "not in this version".
void add_later(CLI::App& app, Context& context);

// orchestrator/cli/{diff,export,merge,undo}.cc, over orchestrator/changes.
void add_diff(CLI::App& app, Context& context);
void add_export(CLI::App& app, Context& context);
void add_merge(CLI::App& app, Context& context);
void add_undo(CLI::App& app, Context& context);

// checkpoint, rollback, fork, squash.
void add_checkpoint(CLI::App& app, Context& context);
// Brings rollbacks that were killed to their end, and says so on stderr; before every command.
void recover_rollbacks();

// Brings merges that were killed to one of their ends, and says so on stderr; before every command.
// What cannot be recovered is named, and refuses a further merge.
void recover_merges();

// What `run --merge` does after the workload has ended: the exit status of `cofferdam merge S`
// without further options (0 merged or nothing to do, 1 conflicts, 125 failed). Human text goes to
// stderr.
int merge_after_run(const Context& context, const SandboxRecord& sandbox);

// How many paths the sandbox changed in its workspace; for the summary and for `rm`.
Result<std::size_t> count_changes(const SandboxRecord& sandbox);

}  // namespace cofferdam::orchestrator::cli
