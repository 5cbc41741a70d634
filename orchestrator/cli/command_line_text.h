// The command line as it describes itself, for shells and for man(1): one source, the parser.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace cofferdam::orchestrator::cli {

struct OptionText {
  std::vector<std::string> names;  // "-i", "--interactive"; a positional one has its name alone
  bool positional = false;
  bool takes_value = false;
  std::vector<std::string> choices;  // what may be the value; empty: anything
  std::string description;
};
struct CommandText {
  std::string name;  // "run", "manifest show"
  std::string description;
  std::vector<OptionText> options;
};
// Every command, those below others included. Pure.
std::vector<CommandText> describe_commands(const CLI::App& app);

// Scripts for the three shells, and cofferdam(1) in man(7).
std::string bash_completion(const std::vector<CommandText>& commands);
std::string zsh_completion(const std::vector<CommandText>& commands);
std::string fish_completion(const std::vector<CommandText>& commands);
std::string manual_page(const std::vector<CommandText>& commands);

}  // namespace cofferdam::orchestrator::cli
