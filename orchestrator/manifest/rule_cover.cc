#include "orchestrator/manifest/rule_cover.h"

#include <algorithm>

#include "common/policy/egress_rule.h"

namespace cofferdam::orchestrator {
namespace {

using Kind = policy::HostPattern::Kind;

bool covers_host(const policy::HostPattern& limit, const policy::HostPattern& pattern) {
  if (limit == pattern) return true;
  if (limit.kind() != Kind::kBelow || pattern.kind() == Kind::kAny) return false;
  // Names below a name that is itself below the limit's.
  return pattern.host().is_name() && limit.matches(pattern.host());
}

bool covers_range(const policy::Cidr& limit, const policy::Cidr& range) {
  return limit.length() <= range.length() && limit.contains(range.address());
}

bool covers_rule(const policy::EgressRule& limit, const policy::EgressRule& rule) {
  if (limit.protocol != rule.protocol || limit.port != rule.port) return false;
  if (!covers_host(limit.pattern, rule.pattern)) return false;
  return std::all_of(rule.addresses.begin(), rule.addresses.end(), [&](const policy::Cidr& range) {
    return std::any_of(limit.addresses.begin(), limit.addresses.end(),
                       [&](const policy::Cidr& one) { return covers_range(one, range); });
  });
}

template <typename T>
std::optional<T> smaller_of(const std::optional<T>& a, const std::optional<T>& b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

}  // namespace

bool covers(std::string_view limit, std::string_view rule) {
  const auto parsed_limit = policy::parse_rule(limit);
  const auto parsed_rule = policy::parse_rule(rule);
  return parsed_limit.ok() && parsed_rule.ok() && covers_rule(*parsed_limit, *parsed_rule);
}

policy::Budget smaller(const policy::Budget& a, const policy::Budget& b) {
  return {smaller_of(a.bytes_up, b.bytes_up), smaller_of(a.bytes_down, b.bytes_down),
          smaller_of(a.connections, b.connections),
          smaller_of(a.connections_per_second, b.connections_per_second),
          smaller_of(a.names_per_minute, b.names_per_minute)};
}

std::vector<NetworkRule> within(const NetworkRule& rule, const std::vector<NetworkRule>& limits) {
  for (const NetworkRule& limit : limits) {
    if (covers(limit.text, rule.text)) {
      return {{rule.text, rule.source, smaller(rule.budget, limit.budget)}};
    }
  }
  std::vector<NetworkRule> out;
  for (const NetworkRule& limit : limits) {
    if (covers(rule.text, limit.text)) {
      out.push_back({limit.text, limit.source, smaller(rule.budget, limit.budget)});
    }
  }
  return out;
}

}  // namespace cofferdam::orchestrator
