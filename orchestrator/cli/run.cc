#include "orchestrator/cli/run.h"

#include <cstdio>
#include <memory>

#include "common/base/escape.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/reap.h"

namespace cofferdam::orchestrator::cli {
namespace {

Status refuse_later(const RunOptions& options) {
  const auto later = [](const std::string& what) { return Error(what + ": not in this version"); };
  if (options.detach && (options.interactive || options.terminal)) {
    return Error("run -d: nobody is there to type; start it, then: cofferdam exec -it S -- CMD");
  }
  if (options.detach && !options.merge.empty() && options.merge != "never") {
    return Error("run -d: there is nothing to merge yet; stop it, then: cofferdam merge S");
  }
  if (options.ask) return later("run --ask");
  if (!options.runtime.empty()) return later("run --runtime");
  if (!options.parent.empty()) return later("run --parent");
  return {};
}

void print_plan(const PreparedRun& run, bool json) {
  if (json) {
    print_json(plan_json(run.plan, run.secret_env));
    return;
  }
  for (const PlanLine& line : run.plan.lines) {
    std::string topic = line.topic;
    if (topic.size() < 10) topic.append(10 - topic.size(), ' ');
    print_line(topic + line.text);
  }
}

int run(const Context& context, const RunOptions& options) {
  if (Status later = refuse_later(options); !later.ok()) return fail(later.error());
  if (context.command.empty() && !options.detach)
    return fail("no command; say: cofferdam run [options] -- CMD [ARG…]");
  const auto store = SandboxStore::open();
  if (!store.ok()) return fail(store.error());
  if (const auto reaped = reap_orphans(*store); !reaped.ok()) {
    return fail(reaped.error());
  } else {
    for (const Reaped& orphan : *reaped) {
      note("reaped " + orphan.name + " (" + orphan.id + "), whose supervisor died");
      for (const std::string& text : orphan.failed) note("reap " + orphan.id + ": " + text);
    }
  }
  const auto prepared = prepare_run(context, options, *store);
  if (!prepared.ok()) return fail(prepared.error());
  if (options.dry_run) {
    print_plan(*prepared, options.json);
    return 0;
  }
  if (options.detach) return carry_out_detached(options, *store, *prepared);
  return carry_out_run(context, options, *store, *prepared);
}

}  // namespace

void add_run(CLI::App& app, Context& context) {
  auto o = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand(
      "run", "Run a command in a new sandbox: cofferdam run [options] -- CMD [ARG…]");
  command->add_option("--manifest", o->manifest,
                      "Manifest file, or a template: install, test, agent, build, locked-down");
  command->add_option("--mode", o->mode, "read-only, workspace or open (every public address)")
      ->check(CLI::IsMember({"read-only", "workspace", "open"}));
  command->add_option("--workspace", o->workspace,
                      "Directory to work on; default: the enclosing git top level");
  // One value each, so that nothing that follows is taken for another one.
  const auto repeated = [&](const char* name, std::vector<std::string>& into, const char* text) {
    command->add_option(name, into, text)->expected(1)->allow_extra_args(false)->take_all();
  };
  repeated("--allow", o->allow, "Egress rule: [PROTO://]HOST[:PORT][=CIDR,…]");
  repeated("--preset", o->presets,
           "Allow a package manager's registry: npm, pip, cargo, go, apt, git");
  repeated("--hide", o->hide, "Hide files from the workload (gitignore pattern)");
  repeated("--readonly", o->readonly, "Refuse changes of files (gitignore pattern)");
  repeated("--env", o->env, "NAME=VALUE, or NAME for your own value");
  command->add_option("--engine", o->engine, "native or docker")
      ->check(CLI::IsMember({"native", "docker"}));
  command->add_option("--image", o->image, "Local image of engine docker");
  command->add_option("--runtime", o->runtime, "OCI runtime (not in this version)");
  command->add_option("--name", o->name, "Name of the sandbox");
  command->add_option("--timeout", o->timeout, "End the workload after 1500ms, 90s, 10m, 2h");
  command->add_option("--memory", o->memory, "Limit: 512MiB, 2GiB");
  command->add_option("--pids", o->pids, "Limit of processes");
  command->add_option("--cpus", o->cpus, "Limit: 1.5");
  command->add_flag("--dry-run", o->dry_run, "Print the plan and do nothing");
  command->add_flag("--rm", o->remove,
                    "Remove the sandbox at the end, unless it has unmerged changes");
  command->add_flag("-d,--detach", o->detach,
                    "Run in the background until it is stopped; a command is not needed");
  command->add_option("--merge", o->merge, "What becomes of the changes: ask, auto, never")
      ->check(CLI::IsMember({"ask", "auto", "never"}));
  command->add_flag("--ask", o->ask, "Ask about denied acts (not in this version)");
  command->add_option("--parent", o->parent, "Sandbox to start from (not in this version)");
  command->add_flag("--json", o->json,
                    "The plan (on stdout) or the summary (on stderr) as one JSON object");
  command->add_flag("-i,--interactive", o->interactive, "Pass stdin on");
  command->add_flag("-t,--tty", o->terminal, "Give the workload a terminal");
  command->callback([&context, o] { context.action = [&context, o] { return run(context, *o); }; });
}

}  // namespace cofferdam::orchestrator::cli
