// cofferdam: the command line and the supervisor of one sandbox.
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "common/log/diagnostics.h"
#include "common/os/pipes.h"
#include "orchestrator/cli/commands.h"

namespace {

using cofferdam::orchestrator::cli::Context;
namespace cli = cofferdam::orchestrator::cli;

// Splits off the command that follows "--": it is the workload's, no option of ours.
std::vector<std::string> take_command(std::vector<std::string>* words) {
  if (words->empty() || (words->front() != "run" && words->front() != "exec")) return {};
  const auto mark = std::find(words->begin(), words->end(), "--");
  if (mark == words->end()) return {};
  std::vector<std::string> command(mark + 1, words->end());
  words->erase(mark, words->end());
  return command;
}

int report_parse(const CLI::App& app, const CLI::ParseError& error, bool runs) {
  if (error.get_exit_code() == 0) return app.exit(error);  // --help
  (void)cli::fail(error.what());
  std::fputs(runs ? "cofferdam: see cofferdam run --help\n" : "cofferdam: see cofferdam --help\n",
             stderr);
  return runs ? cli::kExitFailed : cli::kExitUsage;
}

// An option whose value is empty (--tool "$UNSET") is a mistake: taken for one that was not given,
// it would drop the very restriction that it names.
std::string option_without_value(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& value : option->results()) {
      if (value.empty()) return option->get_name();
    }
  }
  for (const CLI::App* command : app.get_subcommands()) {
    if (std::string name = option_without_value(*command); !name.empty()) return name;
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (!cofferdam::os::occupy_standard_descriptors().ok()) return cli::kExitFailed;
  cofferdam::log::set_up_diagnostics("cofferdam");
  std::vector<std::string> words(argv + 1, argv + argc);
  const bool runs = !words.empty() && (words.front() == "run" || words.front() == "exec");
  Context context;
  context.command = take_command(&words);
  std::error_code code;
  context.directory = std::filesystem::current_path(code);
  if (code) return cli::fail("the current directory: " + code.message());

  CLI::App app("Runs untrusted code on a real repository where it can reach nothing else.",
               "cofferdam");
  app.require_subcommand(1);
  app.set_version_flag("--version", "cofferdam " COFFERDAM_VERSION);
  constexpr std::array kCommands = {
      cli::add_run,        cli::add_exec,  cli::add_stop,   cli::add_prune,    cli::add_verify,
      cli::add_ps,         cli::add_diff,  cli::add_export, cli::add_merge,    cli::add_undo,
      cli::add_checkpoint, cli::add_log,   cli::add_why,    cli::add_rm,       cli::add_reap,
      cli::add_doctor,     cli::add_grant, cli::add_mode,   cli::add_manifest, cli::add_version,
      cli::add_completion, cli::add_top,   cli::add_later};
  for (const auto add : kCommands) add(app, context);
  try {
    std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    return report_parse(app, error, runs);
  }
  if (const std::string name = option_without_value(app); !name.empty()) {
    (void)cli::fail(name + ": its value is empty. Remedy: leave it out, or say what you mean");
    return runs ? cli::kExitFailed : cli::kExitUsage;
  }
  if (!context.action) return cli::kExitUsage;
  cli::recover_merges();
  cli::recover_rollbacks();
  return context.action();
}
