// `cofferdam mode`: switches a sandbox between read-only, workspace and open.
#include <memory>

#include "orchestrator/cli/commands.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/manifest/check_value.h"
#include "orchestrator/manifest/keys.h"
#include "orchestrator/manifest/sources.h"
#include "orchestrator/modes.h"

namespace cofferdam::orchestrator::cli {
namespace {

struct Options {
  std::string sandbox;
  std::string mode;
  std::string reason;
  bool json = false;
};

// The organisation bounds what a person may grant.
Status check_limit(const std::string& mode) {
  TRY_ASSIGN(const SandboxStore store, SandboxStore::open());
  TRY_ASSIGN(const ManifestPlaces places, manifest_places(state_directory(store)));
  TRY_ASSIGN(const auto limit, organisation_limit(places));
  if (!limit) return {};
  if (const std::string fault = mode_fault(*limit, mode); !fault.empty()) return Error(fault);
  return {};
}

int switch_to(const Context& context, const Options& options) {
  if (auto text = check_value(*find_key("image"), options.reason); !text.ok()) {
    return fail(text.error().context("--reason"));
  }
  if (Status permitted = check_limit(options.mode); !permitted.ok()) return fail(permitted.error());
  const auto sandbox = find_sandbox(context, options.sandbox);
  if (!sandbox.ok()) return fail(sandbox.error());
  const auto made = switch_mode(*sandbox, {options.mode, who_asks(), options.reason});
  if (!made.ok()) return fail(made.error());
  if (options.json) {
    print_json(mode_switches_json({*made}).front());
  } else {
    print_line("sandbox " + sandbox->id + ": mode " + made->from + " → " + made->to +
               (sandbox->state == SandboxState::kRunning ? "" : ", from the next exec on"));
  }
  return 0;
}

}  // namespace

void add_mode(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("mode", "Switch a sandbox's mode");
  command->add_option("S", options->sandbox, "The sandbox")->required();
  command->add_option("MODE", options->mode, "read-only, workspace or open")
      ->required()
      ->check(CLI::IsMember({"read-only", "workspace", "open"}));
  command->add_option("--reason", options->reason, "Why; it is recorded")->required();
  command->add_flag("--json", options->json, "One JSON object");
  command->callback([&context, options] {
    context.action = [&context, options] { return switch_to(context, *options); };
  });
}

}  // namespace cofferdam::orchestrator::cli
