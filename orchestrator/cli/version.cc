#include <cstdio>

#include "orchestrator/cli/commands.h"

namespace cofferdam::orchestrator::cli {

void add_version(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("version", "Print the version");
  command->callback([&context] {
    context.action = [] {
      std::puts("cofferdam " COFFERDAM_VERSION);
      return 0;
    };
  });
}

}  // namespace cofferdam::orchestrator::cli
