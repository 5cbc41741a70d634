#include "orchestrator/cli/command_line_text.h"

#include <algorithm>
#include <sstream>

namespace cofferdam::orchestrator::cli {
namespace {

// "TEXT:{native,docker}" → native, docker.
std::vector<std::string> choices_in(const std::string& type) {
  const auto begin = type.find('{');
  const auto end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return {};
  std::vector<std::string> found;
  std::istringstream words(type.substr(begin + 1, end - begin - 1));
  for (std::string word; std::getline(words, word, ',');) found.push_back(word);
  return found;
}

OptionText describe(const CLI::Option& option) {
  OptionText text;
  text.positional = option.get_positional();
  if (text.positional) text.names.push_back(option.get_name(true, false));
  for (const std::string& name : option.get_snames()) text.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) text.names.push_back("--" + name);
  text.takes_value = !text.positional && option.get_items_expected_max() > 0;
  text.choices = choices_in(option.get_type_name());
  text.description = option.get_description();
  return text;
}

void add_command(const CLI::App& app, const std::string& name, std::vector<CommandText>* into) {
  CommandText command{name, app.get_description(), {}};
  for (const CLI::Option* option : app.get_options()) command.options.push_back(describe(*option));
  into->push_back(std::move(command));
  for (const CLI::App* below : app.get_subcommands({})) {
    add_command(*below, name + " " + below->get_name(), into);
  }
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
  return text;
}

// Between single quotes in a shell, where a description may stand in brackets.
std::string quoted(const std::string& text) {
  return replaced(text, "'", "'\\''");
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

bool is_top(const CommandText& command) {
  return command.name.find(' ') == std::string::npos;
}

std::string roff(const std::string& text) {
  return replaced(replaced(text, "\\", "\\e"), "-", "\\-");
}

}  // namespace

std::vector<CommandText> describe_commands(const CLI::App& app) {
  std::vector<CommandText> commands;
  for (const CLI::App* command : app.get_subcommands({})) {
    add_command(*command, command->get_name(), &commands);
  }
  return commands;
}

std::string bash_completion(const std::vector<CommandText>& commands) {
  std::string names;
  std::string cases;
  std::string values;
  for (const CommandText& command : commands) {
    std::vector<std::string> words;
    for (const OptionText& option : command.options) {
      if (option.positional) continue;
      words.insert(words.end(), option.names.begin(), option.names.end());
      if (option.choices.empty()) continue;
      for (const std::string& name : option.names) {
        values += "    '" + command.name + " " + name + "') words='" + joined(option.choices, " ") +
                  "' ;;\n";
      }
    }
    const std::string below = command.name + " ";
    for (const CommandText& other : commands) {
      if (other.name.starts_with(below)) words.push_back(other.name.substr(below.size()));
    }
    if (is_top(command)) names += (names.empty() ? "" : " ") + command.name;
    cases += "    '" + command.name + "') words='" + joined(words, " ") + "' ;;\n";
  }
  return "# bash completion of cofferdam\n"
         "_cofferdam() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
         "  local command=${COMP_WORDS[1]} below=${COMP_WORDS[2]} words='' i\n"
         "  COMPREPLY=()\n"
         "  for ((i = 2; i < COMP_CWORD; i++)); do [[ ${COMP_WORDS[i]} == -- ]] && return; done\n"
         "  if ((COMP_CWORD == 1)); then\n"
         "    COMPREPLY=($(compgen -W '" +
         names +
         " --help --version' -- \"$word\"))\n"
         "    return\n"
         "  fi\n"
         "  case \"$command $before\" in\n" +
         values +
         "  esac\n"
         "  if [[ -n $words ]]; then COMPREPLY=($(compgen -W \"$words\" -- \"$word\")); return; "
         "fi\n"
         "  case \"$command\" in\n" +
         cases +
         "  esac\n"
         "  if [[ $word != -* && $command =~ "
         "^(exec|stop|rm|log|diff|export|merge|undo|grant|mode)$ ]]; then\n"
         "    words=\"last $(cofferdam ps 2>/dev/null | awk 'NR > 1 { print $1; print $2 }')\"\n"
         "  fi\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "}\n"
         "complete -o default -F _cofferdam cofferdam\n";
}

std::string zsh_completion(const std::vector<CommandText>& commands) {
  std::string names;
  std::string cases;
  for (const CommandText& command : commands) {
    if (!is_top(command)) continue;
    const auto plain = [](const std::string& text) {
      return quoted(replaced(replaced(replaced(text, "[", "("), "]", ")"), ":", "\\:"));
    };
    names += "    '" + command.name + ":" + plain(command.description) + "'\n";
    cases += "    " + command.name + ") _arguments";
    for (const OptionText& option : command.options) {
      if (option.positional) continue;
      for (const std::string& name : option.names) {
        cases += " \\\n      '" + name + "[" + plain(option.description) + "]";
        if (option.takes_value) {
          cases += option.choices.empty() ? ":value:_files"
                                          : ":value:(" + joined(option.choices, " ") + ")";
        }
        cases += "'";
      }
    }
    cases += " ;;\n";
  }
  return "#compdef cofferdam\n"
         "_cofferdam() {\n"
         "  local -a commands=(\n" +
         names +
         "  )\n"
         "  if ((CURRENT == 2)); then _describe command commands; return; fi\n"
         "  local command=$words[2]\n"
         "  shift words\n"
         "  ((CURRENT--))\n"
         "  case $command in\n" +
         cases +
         "  esac\n"
         "}\n"
         "_cofferdam \"$@\"\n";
}

std::string fish_completion(const std::vector<CommandText>& commands) {
  std::string text = "# fish completion of cofferdam\ncomplete -c cofferdam -f\n";
  for (const CommandText& command : commands) {
    if (!is_top(command)) continue;
    text += "complete -c cofferdam -n __fish_use_subcommand -a " + command.name + " -d '" +
            quoted(command.description) + "'\n";
    for (const OptionText& option : command.options) {
      if (option.positional) continue;
      text += "complete -c cofferdam -n '__fish_seen_subcommand_from " + command.name + "'";
      for (const std::string& name : option.names) {
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (option.takes_value) text += option.choices.empty() ? " -r -F" : " -x";
      if (!option.choices.empty()) text += " -a '" + joined(option.choices, " ") + "'";
      text += " -d '" + quoted(option.description) + "'\n";
    }
  }
  return text;
}

std::string manual_page(const std::vector<CommandText>& commands) {
  std::string text =
      ".TH COFFERDAM 1\n.SH NAME\ncofferdam \\- runs untrusted code on a real repository where it "
      "can reach nothing else\n.SH SYNOPSIS\n.B cofferdam\n.I command\n[options] [arguments]\n"
      ".SH COMMANDS\n";
  for (const CommandText& command : commands) {
    text += ".SS " + roff(command.name);
    for (const OptionText& option : command.options) {
      if (option.positional) text += " " + roff(option.names.front());
    }
    text += "\n" + roff(command.description) + ".\n";
    for (const OptionText& option : command.options) {
      text += ".TP\n.B " + roff(joined(option.names, ", ")) + "\n" + roff(option.description);
      if (!option.choices.empty()) text += " (" + roff(joined(option.choices, ", ")) + ")";
      text += "\n";
    }
  }
  return text +
         ".SH EXIT STATUS\nOf run and exec: the command's own; 124 timed out; 125 Cofferdam "
         "failed, "
         "refused or was misused; 126 and 127 the command cannot be run or does not exist; 128+N "
         "signal N. Of other commands: 0 done, 1 as the command says, 2 usage, 125 failed.\n"
         ".SH FILES\n${XDG_STATE_HOME:\\-~/.local/state}/cofferdam, "
         "${XDG_CONFIG_HOME:\\-~/.config}/cofferdam, /etc/cofferdam\n";
}

}  // namespace cofferdam::orchestrator::cli
