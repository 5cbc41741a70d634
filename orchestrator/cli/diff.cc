#include "orchestrator/changes/diff.h"

#include <unistd.h>

#include <cstdio>
#include <memory>

#include "common/os/files.h"
#include "orchestrator/changes/changes.h"
#include "orchestrator/changes/known_secrets.h"
#include "orchestrator/checkpoints.h"
#include "orchestrator/cli/commands.h"
#include "orchestrator/cli/pager.h"
#include "orchestrator/cli/review.h"
#include "orchestrator/cli/surroundings.h"

namespace cofferdam::orchestrator::cli {
namespace {

struct Options {
  std::string selector;
  bool stat = false;
  bool name_status = false;
  bool json = false;
  std::vector<std::string> paths;
};

bool lies_in(const std::filesystem::path& path, const std::filesystem::path& directory) {
  const auto relative = path.lexically_relative(directory);
  return !relative.empty() && *relative.begin() != "..";
}

int diff(const Context& context, const Options& options) {
  const auto sandbox = find_sandbox(context, options.selector);
  if (!sandbox.ok()) return fail(sandbox.error());
  const auto paths = workspace_paths(context, *sandbox, options.paths);
  if (!paths.ok()) {
    (void)fail(paths.error());
    return kExitUsage;
  }
  warn_if_running(*sandbox);
  warn_of_unknown_secrets(*sandbox);
  const auto form = options.json          ? changes::DiffForm::kJson
                    : options.name_status ? changes::DiffForm::kNameStatus
                    : options.stat        ? changes::DiffForm::kStat
                                          : changes::DiffForm::kPatch;
  // While the workload may write to this terminal, nothing of ours runs on it that reads keys.
  auto pager = options.json || !sandbox->ended_for_good() ? std::nullopt : Pager::start();
  const changes::Sink out = [&](std::string_view bytes) {
    return pager.has_value() ? pager->write(bytes) : write_stdout(bytes);
  };
  const bool colour = !options.json && stdout_takes_colour();
  const Status done = changes::write_diff(*sandbox, form, *paths, colour, out);
  if (pager.has_value()) pager->finish();
  if (pager.has_value() && pager->quit()) return 0;
  return done.ok() ? 0 : fail(done.error());
}

}  // namespace

Result<std::vector<std::string>> workspace_paths(const Context& context,
                                                 const SandboxRecord& sandbox,
                                                 const std::vector<std::string>& arguments) {
  const std::string from = lies_in(context.directory, sandbox.workspace)
                               ? context.directory.string()
                               : sandbox.workspace;
  std::vector<std::string> paths;
  for (const std::string& argument : arguments) {
    TRY_ASSIGN(std::string path,
               changes::selector_from_argument(argument, from, sandbox.workspace));
    paths.push_back(std::move(path));
  }
  return paths;
}

int show(const SandboxRecord& sandbox, std::string_view text, std::FILE* out) {
  const auto shown = changes::redacted(sandbox, text);
  if (!shown.ok()) return fail(shown.error());
  std::fwrite(shown->data(), 1, shown->size(), out);
  return 0;
}

void note_of(const SandboxRecord& sandbox, std::string_view text) {
  const auto shown = changes::redacted(sandbox, text);
  note(shown.ok() ? *shown : shown.error().message());
}

void warn_if_running(const SandboxRecord& sandbox) {
  if (!sandbox.ended_for_good()) note(sandbox.name + " has not ended: this is what it made so far");
}

void warn_of_unknown_secrets(const SandboxRecord& sandbox) {
  const auto names = changes::secrets_not_looked_for(sandbox);
  if (!names.ok()) {
    note("which secrets it was given cannot be told, and none of them is looked for: " +
         names.error().message());
    return;
  }
  for (const std::string& name : *names) {
    note("secret " + name +
         " is not looked for: its value is not where it was read from (what a command prints is "
         "not kept)");
  }
}

Result<OwnedSandbox> own_ended(const SandboxRecord& sandbox, const std::string& why) {
  TRY_ASSIGN(const SandboxStore store, SandboxStore::open());
  TRY_ASSIGN(auto owned, store.try_own(sandbox));
  if (!owned.has_value()) return Error(sandbox.name + " is running: " + why);
  if (!owned->record.ended_for_good()) {
    return Error(sandbox.name +
                 " was cut short: cofferdam reap first, so that nothing of it still writes");
  }
  TRY(in_no_rollback(owned->record));
  return std::move(*owned);
}

Status write_stdout(std::string_view bytes) {
  return os::write_all(STDOUT_FILENO, bytes);
}

Result<std::size_t> count_changes(const SandboxRecord& sandbox) {
  return changes::count_unmerged_changes(sandbox);
}

void add_diff(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("diff", "Show what a sandbox changed, risky files first");
  command->add_option("S", options->selector, "Sandbox: id, name or last")->required();
  auto* stat = command->add_flag("--stat", options->stat, "Only how much, per path");
  auto* names =
      command->add_flag("--name-status", options->name_status, "Only A, M, D or T, and the path");
  auto* json = command->add_flag("--json", options->json, "One object");
  stat->excludes(names)->excludes(json);
  names->excludes(json);
  command->add_option("PATH", options->paths, "Only these paths and what lies below them");
  command->callback([&context, options] {
    context.action = [&context, options] { return diff(context, *options); };
  });
}

}  // namespace cofferdam::orchestrator::cli
