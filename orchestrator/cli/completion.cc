#include <cstdio>
#include <memory>
#include <string>

#include "orchestrator/cli/command_line_text.h"
#include "orchestrator/cli/commands.h"

namespace cofferdam::orchestrator::cli {

void add_completion(CLI::App& app, Context& context) {
  auto kind = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "completion", "Print a script that completes the command line, or the manual page");
  command->add_option("KIND", *kind, "bash, zsh, fish or man")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish", "man"}));
  command->callback([&app, &context, kind] {
    context.action = [&app, kind] {
      const auto commands = describe_commands(app);
      const std::string text = *kind == "bash"   ? bash_completion(commands)
                               : *kind == "zsh"  ? zsh_completion(commands)
                               : *kind == "fish" ? fish_completion(commands)
                                                 : manual_page(commands);
      std::fwrite(text.data(), 1, text.size(), stdout);
      return 0;
    };
  });
}

}  // namespace cofferdam::orchestrator::cli
