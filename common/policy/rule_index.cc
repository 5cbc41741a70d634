#include "common/policy/rule_index.h"

#include <algorithm>

namespace cofferdam::policy {

void RuleIndex::add(const HostPattern& pattern, std::uint32_t number) {
  switch (pattern.kind()) {
    case HostPattern::Kind::kAny:
      any_.push_back(number);
      return;
    case HostPattern::Kind::kBelow:
      below_[pattern.host().text()].push_back(number);
      return;
    case HostPattern::Kind::kExact:
      break;
  }
  exact_[pattern.host().text()].push_back(number);
}

std::vector<std::uint32_t> RuleIndex::find(const Host& host) const {
  std::vector<std::uint32_t> found = any_;
  const auto append = [&found](const Map& map, std::string_view key) {
    const auto entry = map.find(key);
    if (entry != map.end()) found.insert(found.end(), entry->second.begin(), entry->second.end());
  };
  const std::string text = host.text();
  append(exact_, text);
  if (host.is_name() && !below_.empty()) {
    std::string_view parent = text;
    for (auto dot = parent.find('.'); dot != std::string_view::npos; dot = parent.find('.')) {
      parent.remove_prefix(dot + 1);
      append(below_, parent);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool RuleIndex::lists(const Host& host) const {
  return exact_.contains(host.text());
}

}  // namespace cofferdam::policy
