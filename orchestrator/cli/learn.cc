// `cofferdam manifest learn`: what sandboxes reached, as the rules of a manifest.
#include <cstdio>
#include <memory>

#include "common/os/files.h"
#include "orchestrator/cli/commands.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/event_reader.h"
#include "orchestrator/learned_rules.h"
#include "orchestrator/manifest/learned_manifest.h"
#include "orchestrator/manifest/read_yaml.h"

namespace cofferdam::orchestrator::cli {
namespace {

struct Options {
  std::vector<std::string> sandboxes;
  std::string manifest;
  bool wildcards = false;
};

Status read_record(const Context& context, const std::string& selector, RuleLearner* learner) {
  TRY_ASSIGN(const SandboxRecord sandbox, find_sandbox(context, selector));
  TRY_ASSIGN(const std::string text, os::read_file(sandbox.egress_policy()));
  TRY_ASSIGN(const Json policy, parse_json(text).context(sandbox.egress_policy().string()));
  learner->begin_sandbox(policy);
  TRY_ASSIGN(
      const std::uint64_t end,
      for_each_event(sandbox.events(), 0, [learner](const Json& event) { learner->add(event); }));
  (void)end;
  return {};
}

Result<std::string> learn(const Context& context, const Options& options) {
  RuleLearner learner;
  for (const std::string& selector : options.sandboxes) {
    TRY(read_record(context, selector, &learner).context(selector));
  }
  if (options.manifest.empty()) {
    const LearnedRules learned = learner.result({}, options.wildcards);
    for (const std::string& text : learned.notes) note(text);
    return new_manifest(learned.rules,
                        "What was reached, learned from a record: read it before you trust it.");
  }
  const std::filesystem::path file = context.directory / options.manifest;
  TRY_ASSIGN(const std::string text, os::read_file(file, kMaxManifestBytes));
  TRY_ASSIGN(const std::vector<std::string> existing, rules_of(text, options.manifest));
  const LearnedRules learned = learner.result(existing, options.wildcards);
  TRY_ASSIGN(std::string merged, add_rules(text, options.manifest, learned.rules));
  for (const std::string& one : learned.notes) note(one);
  for (const std::string& rule : learned.rules) note("+ " + rule);
  if (learned.rules.empty()) note("nothing new");
  TRY_ASSIGN(const Json keys, read_manifest_yaml(merged, options.manifest));
  if (keys.value("network", Json::object()).value("mode", "enforce") == "monitor") {
    note("its network.mode is monitor: nothing is enforced until it is set to enforce");
  }
  return merged;
}

}  // namespace

void add_manifest_learn(CLI::App& manifest, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = manifest.add_subcommand(
      "learn",
      "Print a manifest with rules for what sandboxes reached (see network.mode: monitor)");
  command->add_option("S", options->sandboxes, "Sandboxes; what they reached is put together")
      ->required();
  command->add_option("--manifest", options->manifest,
                      "A manifest that the rules are added to; it is printed, not written");
  command->add_flag("--wildcards", options->wildcards,
                    "Write *.parent where three or more names lie below one parent");
  command->callback([&context, options] {
    context.action = [&context, options] {
      const auto text = learn(context, *options);
      if (!text.ok()) return fail(text.error());
      std::fputs(text->c_str(), stdout);
      return 0;
    };
  });
}

}  // namespace cofferdam::orchestrator::cli
