#include <cstdio>
#include <memory>

#include "orchestrator/cli/commands.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/host_catalogue.h"
#include "orchestrator/host_facts.h"
#include "orchestrator/sandbox_store.h"

namespace cofferdam::orchestrator::cli {
namespace {

const char* state_text(HostCheck::State state) {
  switch (state) {
    case HostCheck::State::kGood:
      return "ok";
    case HostCheck::State::kAbsent:
      return "absent";
    case HostCheck::State::kMissing:
      break;
  }
  return "MISSING";
}

Json check_json(const HostCheck& check) {
  return {
      {"name", check.name},
      {"state", check.state == HostCheck::State::kMissing ? "missing" : state_text(check.state)},
      {"required", check.required},
      {"detail", check.detail},
      {"remedy", check.remedy}};
}

void print_check(const HostCheck& check) {
  std::printf("%-8s", state_text(check.state));
  print_line(check.name + ": " + check.detail);
  if (!check.remedy.empty()) print_line("         remedy: " + check.remedy);
}

// Where the layers of sandboxes lie.
Result<std::filesystem::path> layers_directory() {
  TRY_ASSIGN(const SandboxStore store, SandboxStore::open());
  return state_directory(store);
}

int doctor(const std::string& engine, bool json) {
  FactsQuery query;
  query.docker = true;
  const auto facts = gather_host_facts(query);
  if (!facts.ok()) return fail(facts.error());
  const auto state = layers_directory();
  if (!state.ok()) return fail(state.error());
  bool usable = true;
  Json list = Json::array();
  const std::vector<HostCheck> checks = check_host(*facts, engine);
  for (const HostCheck& check : checks) {
    usable = usable && (!check.required || check.state == HostCheck::State::kGood);
    list.push_back(check_json(check));
    if (!json) print_check(check);
  }
  Json catalogue = Json::array();
  std::string group;
  for (const Capability& one : capabilities_of(*facts, gather_host_extras(*state, *facts))) {
    catalogue.push_back(check_json(one.check));
    catalogue.back()["group"] = one.group;
    if (json) continue;
    if (one.group != group) print_line(one.group);
    group = one.group;
    print_check(one.check);
  }
  if (json) {
    print_json({{"engine", engine},
                {"usable", usable},
                {"kernel", facts->kernel},
                {"checks", list},
                {"capabilities", catalogue}});
  } else {
    print_line(
        "note     a NATed public address of this machine cannot be discovered: list it in "
        "network.host_addresses");
    print_line(usable ? "This machine can run sandboxes with engine " + engine + "."
                      : "This machine cannot run sandboxes with engine " + engine + ".");
  }
  return usable ? 0 : 1;
}

}  // namespace

void add_doctor(CLI::App& app, Context& context) {
  struct Options {
    std::string engine = "native";
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("doctor", "Say what this machine can enforce");
  command->add_option("--engine", options->engine, "native or docker")
      ->check(CLI::IsMember({"native", "docker"}));
  command->add_flag("--json", options->json, "One JSON object");
  command->callback([&context, options] {
    context.action = [options] { return doctor(options->engine, options->json); };
  });
}

}  // namespace cofferdam::orchestrator::cli
