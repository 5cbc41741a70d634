// Commands that the command line will have: listed, and refused in so many words.
#include <array>

#include "orchestrator/cli/commands.h"

namespace cofferdam::orchestrator::cli {
namespace {

struct Later {
  const char* name;
  const char* description;
};
constexpr std::array kLater = {
    Later{"approve", "Answer a sandbox's request"},
    Later{"serve", "Serve the API"},
    Later{"preview", "Open a port of a sandbox"},
    Later{"compose", "Run a compose stack"},
};

}  // namespace

void add_later(CLI::App& app, Context& context) {
  for (const Later& later : kLater) {
    CLI::App* command =
        app.add_subcommand(later.name, std::string(later.description) + " (not in this version)");
    command->allow_extras();
    command->callback([&context, name = std::string(later.name)] {
      context.action = [name] { return fail(name + ": not in this version"); };
    });
  }
}

}  // namespace cofferdam::orchestrator::cli
