// `cofferdam grant`: a right for a time, given to a sandbox that runs.
#include <memory>

#include "orchestrator/cli/commands.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/grants.h"
#include "orchestrator/manifest/check_value.h"
#include "orchestrator/manifest/keys.h"
#include "orchestrator/manifest/quantity.h"
#include "orchestrator/manifest/sources.h"

namespace cofferdam::orchestrator::cli {
namespace {

struct Options {
  std::string sandbox;
  std::string rule;
  std::string duration;
  std::string reason;
  bool json = false;
};

// The organisation bounds what a person may grant.
Status limit_rule(GrantRequest* request) {
  TRY_ASSIGN(const SandboxStore store, SandboxStore::open());
  TRY_ASSIGN(const ManifestPlaces places, manifest_places(state_directory(store)));
  TRY_ASSIGN(const auto limit, organisation_limit(places));
  if (!limit) return {};
  TRY_ASSIGN(const NetworkRule rule, permitted_rule(*limit, request->rule));
  request->budget = rule.budget;
  return {};
}

Status fill(const Options& options, GrantRequest* request) {
  request->rule = options.rule;
  if (auto fault = rule_fault(options.rule)) return Error("--allow: " + *fault);
  const auto duration = parse_duration(options.duration);
  if (!duration) return Error("--for " + options.duration + ": must be a duration: 90s, 10m, 2h");
  request->duration = *duration;
  // The same as any text of a manifest.
  if (auto text = check_value(*find_key("image"), options.reason); !text.ok()) {
    return text.error().context("--reason");
  }
  request->why = options.reason;
  request->who = who_asks();
  return {};
}

int grant(const Context& context, const Options& options) {
  GrantRequest request;
  if (Status filled = fill(options, &request); !filled.ok()) return fail(filled.error());
  if (Status permitted = limit_rule(&request); !permitted.ok()) return fail(permitted.error());
  const auto sandbox = find_sandbox(context, options.sandbox);
  if (!sandbox.ok()) return fail(sandbox.error());
  if (sandbox->state != SandboxState::kRunning) {
    return fail("sandbox " + sandbox->id + " does not run (" +
                std::string(to_text(sandbox->state)) +
                "): rights are granted to what runs; start the next one with --allow");
  }
  const auto given = give_grant(*sandbox, request);
  if (!given.ok()) return fail(given.error());
  if (options.json) {
    print_json(grants_json({*given}, std::chrono::system_clock::now()).front());
  } else {
    print_line(given->id + ": sandbox " + sandbox->id + " may reach " + given->rule + " until " +
               given->expires);
  }
  return 0;
}

}  // namespace

void add_grant(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("grant", "Allow a running sandbox something for a time");
  command->add_option("S", options->sandbox, "The sandbox")->required();
  command->add_option("--allow", options->rule, "[PROTO://]HOST[:PORT][=CIDR,...]")->required();
  command->add_option("--for", options->duration, "How long: 90s, 10m, 2h")->required();
  command->add_option("--reason", options->reason, "Why; it is recorded")->required();
  command->add_flag("--json", options->json, "One JSON object");
  command->callback([&context, options] {
    context.action = [&context, options] { return grant(context, *options); };
  });
}

}  // namespace cofferdam::orchestrator::cli
