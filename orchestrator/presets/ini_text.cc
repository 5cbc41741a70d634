#include "orchestrator/presets/ini_text.h"

#include <algorithm>
#include <cctype>

namespace cofferdam::orchestrator {
namespace {

constexpr std::string_view kSpace = " \t\r\f\v";

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

}  // namespace

Result<std::map<std::string, std::string>> parse_ini(std::string_view text) {
  std::map<std::string, std::string> out;
  std::string section;
  std::string* last = nullptr;
  int number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view whole = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    ++number;
    const std::string_view line = trim(whole);
    if (line.empty() || line[0] == '#' || line[0] == ';') continue;
    if (last != nullptr && kSpace.find(whole[0]) != std::string_view::npos) {
      *last += (last->empty() ? "" : "\n") + std::string(line);
      continue;
    }
    if (line[0] == '[' && line.back() == ']') {
      section = lower(line.substr(1, line.size() - 2));
      last = nullptr;
      continue;
    }
    const std::size_t mark = line.find_first_of("=:");
    if (mark == std::string_view::npos || mark == 0) {
      return Error("line " + std::to_string(number) + " is no `key = value`");
    }
    std::string key = lower(trim(line.substr(0, mark)));
    std::replace(key.begin(), key.end(), '_', '-');
    last = &out[section + "." + key];
    *last = std::string(trim(line.substr(mark + 1)));
  }
  return out;
}

std::vector<std::string> words_of(std::string_view text) {
  constexpr std::string_view kBetween = " \t\r\n\f\v";
  std::vector<std::string> out;
  while (true) {
    const std::size_t begin = text.find_first_not_of(kBetween);
    if (begin == std::string_view::npos) return out;
    text.remove_prefix(begin);
    const std::size_t end = text.find_first_of(kBetween);
    out.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return out;
    text.remove_prefix(end);
  }
}

}  // namespace cofferdam::orchestrator
