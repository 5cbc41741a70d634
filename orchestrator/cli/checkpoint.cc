// checkpoint, rollback, fork, squash.
#include <fcntl.h>

#include <cstdio>
#include <memory>

#include "common/base/text_time.h"
#include "common/log/event_log.h"
#include "common/os/files.h"
#include "orchestrator/automatic_checkpoint.h"
#include "orchestrator/checkpoints.h"
#include "orchestrator/cli/commands.h"
#include "orchestrator/cli/review.h"
#include "orchestrator/cli/surroundings.h"

namespace cofferdam::orchestrator::cli {
namespace {

struct Options {
  std::string sandbox;
  std::string name;
  bool json = false;
};

Json to_json(const SandboxRecord& sandbox, const layer::Checkpoint& checkpoint) {
  return {{"sandbox", sandbox.id},
          {"checkpoint", checkpoint.id},
          {"name", checkpoint.name},
          {"layer", checkpoint.layer}};
}

std::string called(const layer::Checkpoint& checkpoint) {
  return checkpoint.name.empty() ? checkpoint.id : checkpoint.name;
}

// What the supervisor would have written while it ran.
void record(const SandboxRecord& sandbox, std::string_view event, Json fields) {
  auto file = os::open_file(sandbox.events(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, 0600);
  if (!file.ok()) return note("the event is not recorded: " + file.error().message());
  log::EventLog events(std::move(file).value(), {sandbox.id, "", sandbox.manifest, "supervisor"});
  const Status written = events.write(event, fields);
  if (!written.ok()) note("the event is not recorded: " + written.error().message());
}

Status check_name(const std::string& name) {
  if (name.starts_with(kAutomaticPrefix)) {
    return Error(name + ": such names are those of automatic checkpoints");
  }
  if (name.empty() || is_sandbox_name(name)) return {};
  return Error("not a name of a checkpoint: " + name + " (allowed: [a-z0-9][a-z0-9_.-]{0,62})");
}

Result<layer::Checkpoint> take_checkpoint(const SandboxRecord& sandbox, const std::string& name) {
  TRY(check_name(name));
  if (sandbox.state == SandboxState::kRunning) return checkpoint_running(sandbox, name);
  TRY_ASSIGN(const OwnedSandbox owned, own_ended(sandbox, "it is just starting or ending"));
  TRY_ASSIGN(const layer::Checkpoint made, checkpoint_ended(owned.record, name));
  record(owned.record, "checkpoint",
         {{"verdict", "allow"}, {"checkpoint.id", made.id}, {"name", made.name}});
  return made;
}

int checkpoint(const Context& context, const Options& options) {
  const auto sandbox = find_sandbox(context, options.sandbox);
  if (!sandbox.ok()) return fail(sandbox.error());
  const auto made = take_checkpoint(*sandbox, options.name);
  if (!made.ok()) return fail(made.error());
  if (options.json) {
    print_json(to_json(*sandbox, *made));
  } else {
    print_line("checkpoint " + called(*made) + " of " + sandbox->name);
  }
  return 0;
}

int rollback(const Context& context, const Options& options) {
  const auto sandbox = find_sandbox(context, options.sandbox);
  if (!sandbox.ok()) return fail(sandbox.error());
  const auto owned =
      own_ended(*sandbox, "what its processes hold open cannot be taken back; end it first");
  if (!owned.ok()) return fail(owned.error());
  const auto target = find_checkpoint(owned->record, options.name);
  if (!target.ok()) return fail(target.error());
  const Status done = roll_back(owned->record, *target);
  record(owned->record, "rollback",
         {{"verdict", done.ok() ? "allow" : "error"},
          {"checkpoint.id", target->id},
          {"name", target->name}});
  if (!done.ok()) return fail(done.error());
  if (options.json) {
    print_json(to_json(*sandbox, *target));
  } else {
    print_line(sandbox->name + " is as it was at checkpoint " + called(*target));
  }
  return 0;
}

int fork_sandbox(const Context& context, const Options& options) {
  const auto store = SandboxStore::open();
  if (!store.ok()) return fail(store.error());
  const auto sandbox = find_sandbox(context, options.sandbox);
  if (!sandbox.ok()) return fail(sandbox.error());
  if (!options.name.empty() && !is_sandbox_name(options.name)) {
    return fail("not a sandbox name: " + options.name);
  }
  const auto point = take_checkpoint(*sandbox, "");
  if (!point.ok()) return fail(point.error());
  const auto made = fork(*store, *sandbox, options.name);
  if (!made.ok()) return fail(made.error());
  const Json fields = {{"checkpoint.id", point->id}, {"from", sandbox->id}, {"to", made->id}};
  record(*sandbox, "fork", fields);
  record(*made, "fork", fields);
  if (options.json) {
    print_json({{"sandbox", made->id},
                {"name", made->name},
                {"from", sandbox->id},
                {"checkpoint", point->id}});
  } else {
    print_line(made->id + ": a fork of " + sandbox->name +
               (made->name == made->id ? "" : ", named " + made->name));
  }
  return 0;
}

int squash_sandbox(const Context& context, const Options& options) {
  const auto sandbox = find_sandbox(context, options.sandbox);
  if (!sandbox.ok()) return fail(sandbox.error());
  const auto owned = own_ended(*sandbox, "its layers are in use; end it first");
  if (!owned.ok()) return fail(owned.error());
  const auto folded = squash(owned->record);
  if (!folded.ok()) return fail(folded.error().context("squash " + sandbox->name));
  record(owned->record, "squash", {{"verdict", "allow"}, {"layers", *folded}});
  if (options.json) {
    print_json({{"sandbox", sandbox->id}, {"folded", *folded}});
  } else if (*folded == 0) {
    print_line(sandbox->name + " has nothing to fold");
  } else {
    print_line(std::to_string(*folded) + " checkpoints of " + sandbox->name + " are one now");
  }
  return 0;
}

}  // namespace

// A rollback that was cut short; before each command.
void recover_rollbacks() {
  const auto store = SandboxStore::open();
  if (!store.ok()) return;
  std::error_code code;
  bool any = false;
  for (std::filesystem::directory_iterator it(store->root(), code), end; !code && it != end;
       it.increment(code)) {
    SandboxRecord sandbox;
    sandbox.directory = it->path();
    any = any || has_unfinished_rollback(sandbox);
  }
  if (!any) return;
  const auto sandboxes = store->list();
  if (!sandboxes.ok()) return;
  for (const SandboxRecord& sandbox : *sandboxes) {
    if (!has_unfinished_rollback(sandbox)) continue;
    const auto owned = store->try_own(sandbox);
    if (!owned.ok() || !owned->has_value()) continue;  // it is done just now
    const Status done = finish_rollback((*owned)->record);
    note(done.ok() ? "a rollback of " + sandbox.name + " that was cut short is finished now"
                   : "a rollback of " + sandbox.name +
                         " was cut short and cannot be finished: " + done.error().message());
  }
}

void add_checkpoint(CLI::App& app, Context& context) {
  struct Entry {
    const char* name;
    const char* description;
    const char* argument;  // of NAME; null: --name
    int (*act)(const Context&, const Options&);
  };
  static constexpr std::array kEntries = {
      Entry{"checkpoint", "Keep the state of a sandbox, while it runs or after it ended", "NAME",
            checkpoint},
      Entry{"rollback", "Go back to a checkpoint; what came after it is removed", "NAME", rollback},
      Entry{"fork", "Make a second sandbox that goes on from the state of one", "--name",
            fork_sandbox},
      Entry{"squash", "Fold the checkpoints of a sandbox into one", nullptr, squash_sandbox}};
  for (const Entry& entry : kEntries) {
    auto options = std::make_shared<Options>();
    CLI::App* command = app.add_subcommand(entry.name, entry.description);
    command->add_option("S", options->sandbox, "Sandbox: id, name or last")->required();
    if (entry.argument != nullptr) {
      command->add_option(entry.argument, options->name,
                          entry.act == fork_sandbox ? "Its name" : "Of the checkpoint");
    }
    command->add_flag("--json", options->json, "One JSON object");
    command->callback([&context, options, act = entry.act] {
      context.action = [&context, options, act] { return act(context, *options); };
    });
  }
}

}  // namespace cofferdam::orchestrator::cli
