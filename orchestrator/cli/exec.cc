#include "orchestrator/cli/exec.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "common/base/escape.h"
#include "common/log/event_log.h"
#include "common/os/files.h"
#include "common/os/terminal.h"
#include "orchestrator/automatic_checkpoint.h"
#include "orchestrator/changes/journal.h"
#include "orchestrator/checkpoints.h"
#include "orchestrator/cli/run.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/declared_tool.h"
#include "orchestrator/manifest/narrow.h"
#include "orchestrator/manifest/quantity.h"
#include "orchestrator/manifest/sources.h"
#include "orchestrator/reap.h"
#include "orchestrator/stored_plan.h"

namespace cofferdam::orchestrator::cli {
namespace {

using Clock = std::chrono::steady_clock;

// For a sandbox that is about to run, or about to have ended.
constexpr std::chrono::seconds kReadiness{30};
constexpr std::chrono::milliseconds kPause{20};

// The organisation's bounds hold for further variables as for those of the run.
Status check_variables(const SandboxStore& store, const SandboxRecord& record,
                       const std::map<std::string, std::string>& carried) {
  if (carried.empty()) return {};
  TRY_ASSIGN(const ManifestPlaces places, manifest_places(state_directory(store)));
  TRY_ASSIGN(const std::optional<ManifestLimit> limit, organisation_limit(places));
  if (!limit) return {};
  TRY_ASSIGN(const RestoredPlan restored, load_plan(record));
  Manifest names;
  names.engine = record.engine;
  if (restored.plan.docker) names.image = restored.plan.docker->image;
  for (const auto& [name, value] : carried) names.env_allow.push_back(name);
  TRY(narrow(&names, *limit));
  for (const auto& [name, value] : carried) {
    const auto& kept = names.env_allow;
    if (std::find(kept.begin(), kept.end(), name) == kept.end()) {
      return Error("--env " + name + " is not permitted by " + limit->source);
    }
  }
  return {};
}

// Who is there says yes or no to a tool that wants that; anything else is decided where the command
// is started.
Status ask_for_tool(const SandboxRecord& record, ExecRequest* request) {
  if (request->tool.empty()) return {};
  TRY_ASSIGN(const std::string text, os::read_file(record.directory / "manifest.json"));
  TRY_ASSIGN(const Json manifest, parse_json(text));
  if (approval_of_tool(manifest, request->tool) != "ask") return {};
  if (!os::is_terminal(STDIN_FILENO) || !os::is_terminal(STDERR_FILENO)) return {};
  const std::string question = "cofferdam: let tool " + escape_for_terminal(request->tool) +
                               " run " + escape_for_terminal(request->argv.front()) + " in " +
                               record.name + "? [y/N] ";
  os::discard_typed_ahead(STDIN_FILENO);
  std::fputs(question.c_str(), stderr);
  std::array<char, 16> answer{};
  if (std::fgets(answer.data(), answer.size(), stdin) == nullptr) return {};
  if (answer[0] != 'y' && answer[0] != 'Y') return {};
  TRY_ASSIGN(request->approval.id, make_sandbox_id());
  request->approval.who = who_asks();
  return {};
}

// What is changed now can be taken back; why it cannot is told, and the command runs all the same.
void keep_state(const KeptState& kept, ExecPlan* plan) {
  plan->request.checkpoint = kept.checkpoint;
  plan->checkpoint = false;  // once
  if (!kept.fault.empty()) note("no checkpoint before it: " + kept.fault);
}

Result<ExecPlan> make_exec_plan(const Context& context, const ExecOptions& options,
                                const SandboxStore& store, const SandboxRecord& record) {
  ExecPlan plan;
  plan.interactive = options.interactive;
  plan.checkpoint = !options.no_checkpoint;
  plan.request.tool = options.tool;
  plan.request.argv = context.command;
  plan.request.terminal = options.terminal;
  for (const std::string& text : options.env) TRY(carry_variable(text, &plan.carried));
  TRY(check_variables(store, record, plan.carried));
  for (const auto& [name, value] : plan.carried) plan.request.env.push_back(name + "=" + value);
  if (!options.timeout.empty()) {
    plan.request.timeout = parse_duration(options.timeout);
    if (!plan.request.timeout) {
      return Error("--timeout " + options.timeout + ": must be a duration: 1500ms, 90s, 10m, 2h");
    }
  }
  const std::string here = context.directory.string();
  const bool inside = here == record.workspace || here.starts_with(record.workspace + "/");
  if (inside) plan.request.directory = here;
  return plan;
}

// Before an ended sandbox is started for it; a refusal is recorded.
Status check_tool(const SandboxRecord& record, const ExecRequest& request) {
  if (request.tool.empty()) return {};
  TRY_ASSIGN(const std::string text, os::read_file(record.directory / "manifest.json"));
  TRY_ASSIGN(const Json manifest, parse_json(text));
  const ToolDecision decision = decide_tool(manifest, request.tool, request.approval);
  if (decision.allowed()) return {};
  TRY_ASSIGN(os::UniqueFd fd, os::open_file(record.events(), O_WRONLY | O_APPEND | O_CREAT));
  log::EventLog events(std::move(fd), {record.id, "", record.manifest, "supervisor"});
  TRY(events.write("tool_refused", refusal_fields(decision)));
  return Error(decision.message);
}

// Whoever holds the sandbox decides: its supervisor takes the command, or, where it has ended, this
// process becomes its supervisor. Of several that ask at once, one becomes it and serves the
// others.
Result<RunOutcome> exec_where_it_is(const SandboxStore& store, SandboxRecord record,
                                    ExecPlan plan) {
  const auto deadline = Clock::now() + kReadiness;
  for (;;) {
    TRY_ASSIGN(auto owned, store.try_own(record));
    if (owned) {
      OwnedSandbox sandbox = std::move(*owned);
      if (!sandbox.record.ended_for_good()) {
        const Reaped reaped = reap_one(&sandbox);
        if (!reaped.failed.empty()) return Error(reaped.failed.front());
      }
      TRY(in_no_rollback(sandbox.record));
      if (changes::Journal::has_active(sandbox.record)) {
        return Error("a merge of it is not brought to an end yet");
      }
      TRY(check_tool(sandbox.record, plan.request));
      if (plan.checkpoint) keep_state(keep_ended_state(sandbox.record, "exec"), &plan);
      return exec_in_ended(&sandbox, store, plan);
    }
    if (plan.checkpoint && record.state == SandboxState::kRunning) {
      keep_state(keep_running_state(record, "exec"), &plan);
    }
    auto outcome = exec_in_running(record, plan);
    if (outcome.ok() || outcome.error().error_number() != EAGAIN) return outcome;
    if (Clock::now() >= deadline) {
      return Error("its supervisor takes no commands (state " + std::string(to_text(record.state)) +
                   ")");
    }
    std::this_thread::sleep_for(kPause);
    TRY_ASSIGN(record, store.reload(record));
  }
}

int exec(const Context& context, const ExecOptions& options) {
  if (context.command.empty()) {
    return fail("no command; say: cofferdam exec [options] S -- CMD [ARG…]");
  }
  const auto record = find_sandbox(context, options.selector);
  if (!record.ok()) return fail(record.error());
  const auto store = SandboxStore::open();
  if (!store.ok()) return fail(store.error());
  auto plan = make_exec_plan(context, options, *store, *record);
  if (!plan.ok()) return fail(plan.error());
  if (Status asked = ask_for_tool(*record, &plan->request); !asked.ok()) return fail(asked.error());
  const auto outcome = exec_where_it_is(*store, *record, *plan);
  if (!outcome.ok()) return fail(outcome.error().context("sandbox " + record->name));
  if (!outcome->message.empty()) (void)fail(outcome->message);
  return outcome->exit_status();
}

}  // namespace

void add_exec(CLI::App& app, Context& context) {
  auto o = std::make_shared<ExecOptions>();
  CLI::App* command = app.add_subcommand(
      "exec", "Run a further command in a sandbox: cofferdam exec [options] S -- CMD [ARG…]");
  command->add_option("S", o->selector, "Sandbox: id, name or last; running or ended")->required();
  command->add_option("--env", o->env, "NAME=VALUE, or NAME for your own value")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--timeout", o->timeout, "End the command after 1500ms, 90s, 10m, 2h");
  command->add_option("--tool", o->tool, "The command is this tool of the manifest; recorded");
  command->add_flag("--no-checkpoint", o->no_checkpoint,
                    "Do not keep what the sandbox shows before it");
  command->add_flag("-i,--interactive", o->interactive, "Pass stdin on");
  command->add_flag("-t,--tty", o->terminal, "Give the command a terminal");
  command->callback(
      [&context, o] { context.action = [&context, o] { return exec(context, *o); }; });
}

}  // namespace cofferdam::orchestrator::cli
