#include "orchestrator/changes/merge.h"

#include <cstdio>
#include <memory>
#include <utility>

#include "orchestrator/automatic_checkpoint.h"
#include "orchestrator/checkpoints.h"
#include "orchestrator/cli/commands.h"
#include "orchestrator/cli/progress_bar.h"
#include "orchestrator/cli/recorded_operation.h"
#include "orchestrator/cli/review.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/engine/program_path.h"

namespace cofferdam::orchestrator::cli {
namespace {

struct Options {
  std::string selector;
  bool dry_run = false;
  bool strict_reads = false;
  bool ignored = false;
  bool commits = false;
  bool json = false;
  std::vector<std::pair<std::string, std::string>> take;
  std::vector<std::string> allow_risky;
  std::vector<std::string> paths;
};

int misuse(const std::string& message) {
  (void)fail(message);
  return kExitUsage;
}

Result<changes::MergeOptions> merge_options(const Context& context, const SandboxRecord& sandbox,
                                            const Options& options) {
  changes::MergeOptions result;
  result.dry_run = options.dry_run;
  result.strict_reads = options.strict_reads;
  result.ignored = options.ignored;
  for (const auto& [side, argument] : options.take) {
    if (side != "ours" && side != "theirs" && side != "markers") {
      return Error("--take " + side + ": ours, theirs or markers");
    }
    TRY_ASSIGN(const auto path, workspace_paths(context, sandbox, {argument}));
    result.take[path.front()] = side == "ours"     ? changes::Side::kOurs
                                : side == "theirs" ? changes::Side::kTheirs
                                                   : changes::Side::kMarkers;
  }
  TRY_ASSIGN(result.allow_risky, workspace_paths(context, sandbox, options.allow_risky));
  TRY_ASSIGN(result.paths, workspace_paths(context, sandbox, options.paths));
  if (options.commits) {
    if (!result.paths.empty()) return Error("--commits takes the whole of it: no PATH with it");
    TRY_ASSIGN(result.commits, find_own_program("cofferdam-reader"));
  }
  return result;
}

std::uint64_t bytes_taken(const changes::MergeReport& report) {
  std::uint64_t bytes = 0;
  for (const changes::MergeItem& item : report.items) {
    if (item.outcome != changes::Outcome::kTaken) continue;
    bytes += item.change.bulk_bytes > 0 ? item.change.bulk_bytes : item.result.size;
  }
  return bytes;
}

Result<changes::MergeReport> with_progress(const SandboxRecord& sandbox,
                                           changes::MergeOptions options) {
  ProgressBar bar("merging");
  options.progress = [&bar](std::uint64_t done, std::uint64_t total) { bar.tell(done, total); };
  return changes::merge_sandbox(sandbox, options);
}

// Nothing is written home that is not recorded, and what the sandbox shows is kept before.
Result<changes::MergeReport> merge_recorded(const SandboxRecord& sandbox,
                                            const changes::MergeOptions& options) {
  warn_of_unknown_secrets(sandbox);
  if (options.dry_run) return changes::merge_sandbox(sandbox, options);
  TRY(in_no_rollback(sandbox));
  const KeptState kept = keep_ended_state(sandbox, "merge");
  if (!kept.fault.empty()) note("no checkpoint before it: " + kept.fault);
  TRY_ASSIGN(RecordedOperation operation,
             RecordedOperation::begin(
                 sandbox, "merge",
                 {{"checkpoint.id", kept.checkpoint.empty() ? Json() : Json(kept.checkpoint)},
                  {"commits", options.commits.has_value()},
                  {"ignored", options.ignored},
                  {"paths", options.paths.size()}}));
  auto report = with_progress(sandbox, options);
  if (!report.ok()) {
    operation.end(kExitFailed, report.error().message(), {{"written", false}});
    return report;
  }
  const auto count = [&](changes::Outcome outcome) { return report->count(outcome); };
  operation.end(report->exit_status(), report->failure,
                {{"written", report->written},
                 {"taken", count(changes::Outcome::kTaken)},
                 {"conflicts", count(changes::Outcome::kConflict)},
                 {"refused", count(changes::Outcome::kRefused)},
                 {"bytes", report->written ? bytes_taken(*report) : 0}});
  return report;
}

int merge(const Context& context, const Options& options) {
  const auto found = find_sandbox(context, options.selector);
  if (!found.ok()) return fail(found.error());
  const auto asked = merge_options(context, *found, options);
  if (!asked.ok()) return misuse(asked.error().message());

  const auto owned = own_ended(*found, "what it writes can only be merged after it has ended");
  if (!owned.ok()) return fail(owned.error());
  const SandboxRecord& sandbox = owned->record;
  const auto report = merge_recorded(sandbox, *asked);
  if (!report.ok()) return fail(report.error());
  const std::string text =
      options.json ? printable_json(changes::to_json(*report, options.dry_run), 2) + "\n"
                   : changes::describe(*report, options.dry_run);
  if (const int shown = show(sandbox, text, stdout); shown != 0) return shown;
  if (report->exit_status() == kExitFailed) note_of(sandbox, "merge failed: " + report->failure);
  return report->exit_status();
}

}  // namespace

int merge_after_run(const Context& /*context*/, const SandboxRecord& sandbox) {
  const auto report = merge_recorded(sandbox, {});
  if (!report.ok()) return fail(report.error());
  if (const int shown = show(sandbox, changes::describe(*report, false), stderr); shown != 0) {
    return shown;
  }
  return report->exit_status();
}

void add_merge(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "merge", "Take a sandbox's changes into the workspace: all of them, or nothing");
  command->add_option("S", options->selector, "Sandbox: id, name or last")->required();
  command->add_flag("--dry-run", options->dry_run, "Only say what would be done");
  command
      ->add_option("--take", options->take, "SIDE PATH: decide a path for ours, theirs or markers")
      ->type_name("SIDE PATH")
      ->allow_extra_args(false);
  command->add_flag("--strict-reads", options->strict_reads,
                    "What the sandbox read and you changed since is a conflict");
  command->add_option("--allow-risky", options->allow_risky, "Take this risky path home too")
      ->allow_extra_args(false);
  command->add_flag("--ignored", options->ignored,
                    "Also what your own ignore rules cover, e.g. --ignored node_modules");
  command->add_flag(
      "--commits", options->commits,
      "The sandbox's commits too: under refs/cofferdam/, and as a fast-forward of your branch");
  command->add_flag("--json", options->json, "One object");
  command->add_option("PATH", options->paths, "Only these paths and what lies below them");
  command->callback([&context, options] {
    context.action = [&context, options] { return merge(context, *options); };
  });
}

}  // namespace cofferdam::orchestrator::cli
