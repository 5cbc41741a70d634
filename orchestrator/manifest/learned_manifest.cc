#include "orchestrator/manifest/learned_manifest.h"

#include <yaml-cpp/yaml.h>

#include <exception>

#include "orchestrator/manifest/read_yaml.h"

namespace cofferdam::orchestrator {
namespace {

// A rule's text holds neither quotes nor line ends.
std::string quoted(const std::string& rule) {
  return "'" + rule + "'";
}

std::string items(const std::vector<std::string>& rules, std::size_t indent) {
  std::string text;
  for (const std::string& rule : rules) {
    text += std::string(indent, ' ') + "- " + quoted(rule) + "\n";
  }
  return text;
}

std::string flow_items(const std::vector<std::string>& rules) {
  std::string text;
  for (const std::string& rule : rules) text += (text.empty() ? "" : ", ") + quoted(rule);
  return text;
}

std::size_t line_start(std::string_view text, std::size_t position) {
  const auto before = position == 0 ? std::string_view::npos : text.rfind('\n', position - 1);
  return before == std::string_view::npos ? 0 : before + 1;
}

std::size_t next_line(std::string_view text, std::size_t position) {
  const auto end = text.find('\n', position);
  return end == std::string_view::npos ? text.size() : end + 1;
}

std::size_t indent_of(std::string_view text, std::size_t line) {
  std::size_t indent = 0;
  while (line + indent < text.size() && text[line + indent] == ' ') ++indent;
  return indent;
}

bool is_content(std::string_view text, std::size_t line) {
  const std::size_t first = line + indent_of(text, line);
  return first < text.size() && text[first] != '#' && text[first] != '\n' && text[first] != '\r';
}

// Behind a block entry that begins at `position` in a line whose entries begin at column `column`.
std::size_t end_of_entry(std::string_view text, std::size_t position, std::size_t column) {
  std::size_t end = next_line(text, position);
  for (std::size_t line = end; line < text.size(); line = next_line(text, line)) {
    if (!is_content(text, line)) continue;
    if (indent_of(text, line) <= column) break;
    end = next_line(text, line);
  }
  return end;
}

// The ']' or '}' that closes the bracket at `open`; npos where there is none.
std::size_t closing(std::string_view text, std::size_t open) {
  int depth = 0;
  char quote = 0;
  for (std::size_t i = open; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == '\\' && quote == '"') ++i;
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '#' && i > 0 && (text[i - 1] == ' ' || text[i - 1] == '\n')) {
      i = next_line(text, i) - 1;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if ((c == ']' || c == '}') && --depth == 0) {
      return i;
    }
  }
  return std::string_view::npos;
}

std::size_t position_of(const YAML::Node& node) {
  return static_cast<std::size_t>(node.Mark().pos);
}

std::string with_line_end(std::string_view text) {
  std::string out(text);
  if (!out.empty() && out.back() != '\n') out += '\n';
  return out;
}

std::string add_to_list(std::string text, const YAML::Node& list,
                        const std::vector<std::string>& rules) {
  if (list.Style() == YAML::EmitterStyle::Flow || list.size() == 0) {
    const std::size_t open = position_of(list);
    const std::size_t close = closing(text, open);
    if (open >= text.size() || text[open] != '[' || close == std::string::npos) return {};
    return text.insert(close, (list.size() == 0 ? "" : ", ") + flow_items(rules));
  }
  const std::size_t last = position_of(list[list.size() - 1]);
  const std::size_t line = line_start(text, position_of(list[0]));
  const std::size_t dash = indent_of(text, line);
  if (line + dash >= text.size() || text[line + dash] != '-') return {};
  return text.insert(end_of_entry(text, last, dash), items(rules, dash));
}

// network has no rules yet: `key` is the node of the word, `network` its value.
std::string add_list(std::string text, const YAML::Node& key, const YAML::Node& network,
                     const std::vector<std::string>& rules) {
  if (network.IsMap() && network.Style() == YAML::EmitterStyle::Flow) {
    const std::size_t open = position_of(network);
    if (open >= text.size() || text[open] != '{') return {};
    const std::string list = "rules: [" + flow_items(rules) + "]";
    return text.insert(open + 1, list + (network.size() == 0 ? "" : ", "));
  }
  const std::size_t behind = next_line(text, position_of(key));
  std::size_t indent = 2;
  if (network.IsMap() && network.size() > 0) {
    indent = static_cast<std::size_t>(network.begin()->first.Mark().column);
  }
  return text.insert(behind, std::string(indent, ' ') + "rules:\n" + items(rules, indent + 2));
}

std::string add_to_text(std::string_view original, const std::vector<std::string>& rules) {
  const std::string text = with_line_end(original);
  const YAML::Node root = YAML::Load(text);
  for (const auto& entry : root) {
    if (entry.first.Scalar() != "network") continue;
    const YAML::Node network = entry.second;
    const YAML::Node list =
        network.IsMap() ? network["rules"] : YAML::Node(YAML::NodeType::Undefined);
    if (network.IsMap() && list.IsDefined() && list.IsSequence()) {
      return add_to_list(text, list, rules);
    }
    return add_list(text, entry.first, network, rules);
  }
  return text + "network:\n  rules:\n" + items(rules, 4);
}

}  // namespace

std::string new_manifest(const std::vector<std::string>& rules, std::string_view about) {
  std::string text = "# " + std::string(about) + "\nversion: 1\nnetwork:\n  mode: enforce\n";
  if (rules.empty()) return text + "  rules: []\n";
  return text + "  rules:\n" + items(rules, 4);
}

Result<std::vector<std::string>> rules_of(std::string_view text, std::string_view file) {
  TRY_ASSIGN(const Json keys, read_manifest_yaml(text, file));
  std::vector<std::string> rules;
  const Json network = keys.value("network", Json::object());
  for (const Json& rule : network.value("rules", Json::array())) {
    rules.push_back(rule.is_string() ? rule.get<std::string>() : rule.value("rule", ""));
  }
  return rules;
}

Result<std::string> add_rules(std::string_view text, std::string_view file,
                              const std::vector<std::string>& rules) {
  TRY_ASSIGN(std::vector<std::string> wanted, rules_of(text, file));
  if (rules.empty()) return std::string(text);
  wanted.insert(wanted.end(), rules.begin(), rules.end());
  std::string merged;
  try {
    merged = add_to_text(text, rules);
  } catch (const std::exception& error) {
    return Error(std::string(file) + ": " + error.what());
  }
  const auto read_back = rules_of(merged, file);
  if (merged.empty() || !read_back.ok() || *read_back != wanted) {
    return Error(
        std::string(file) +
        ": network.rules has a form that rules cannot be added to; write it as a list, one "
        "rule a line");
  }
  return merged;
}

}  // namespace cofferdam::orchestrator
