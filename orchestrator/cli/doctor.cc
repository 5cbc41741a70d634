#include <chrono>
#include <cstdio>
#include <memory>

#include "common/os/process.h"
#include "orchestrator/cli/commands.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/engine/program_path.h"
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

// Which way the bytes of large files go: fsproxy says it of itself.
HostCheck passthrough_check() {
  constexpr std::string_view kLine = "\npassthrough: ";
  HostCheck check;
  check.name = "FUSE passthrough";
  check.state = HostCheck::State::kAbsent;
  std::string said = "cofferdam-fsproxy does not say";
  const auto program = find_own_program("cofferdam-fsproxy");
  if (program.ok()) {
    os::SpawnOptions options;
    options.argv = {program->string(), "--version"};
    options.env = std::vector<std::string>{};
    const auto output = os::run_command(std::move(options), std::chrono::seconds(10));
    const std::size_t at = output.ok() ? output->out.find(kLine) : std::string::npos;
    if (at != std::string::npos) {
      said = output->out.substr(at + kLine.size());
      said = said.substr(0, said.find('\n'));
    }
  }
  if (said == "yes") {
    check.state = HostCheck::State::kGood;
    check.detail = "large and new files go past fsproxy";
    return check;
  }
  check.detail = "every byte passes through fsproxy (" + said + ")";
  check.remedy =
      "nothing is weaker without it; it needs root, Linux 6.9 and libfuse 3.17 (tools/get_libfuse)";
  return check;
}

int doctor(const std::string& engine, bool json) {
  FactsQuery query;
  query.docker = true;
  const auto facts = gather_host_facts(query);
  if (!facts.ok()) return fail(facts.error());
  bool usable = true;
  Json list = Json::array();
  std::vector<HostCheck> checks = check_host(*facts, engine);
  checks.push_back(passthrough_check());
  for (const HostCheck& check : checks) {
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
