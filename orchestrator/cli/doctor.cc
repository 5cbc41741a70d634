#include <cstdio>
#include <memory>

#include "orchestrator/cli/commands.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/host_facts.h"

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

int doctor(const std::string& engine, bool json) {
  FactsQuery query;
  query.docker = true;
  const auto facts = gather_host_facts(query);
  if (!facts.ok()) return fail(facts.error());
  bool usable = true;
  Json list = Json::array();
  for (const HostCheck& check : check_host(*facts, engine)) {
    usable = usable && (!check.required || check.state == HostCheck::State::kGood);
    list.push_back(check_json(check));
    if (json) continue;
    std::printf("%-8s", state_text(check.state));
    print_line(check.name + ": " + check.detail);
    if (!check.remedy.empty()) print_line("         remedy: " + check.remedy);
  }
  if (json) {
    print_json(
        {{"engine", engine}, {"usable", usable}, {"kernel", facts->kernel}, {"checks", list}});
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
