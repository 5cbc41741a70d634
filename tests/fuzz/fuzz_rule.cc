// Rules, deny entries and whole policies: canonical text is a fixed point, and what a policy of one
// rule allows is what the rule says.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/escape.h"
#include "common/policy/egress_policy.h"
#include "common/policy/public_suffix.h"

namespace policy = cofferdam::policy;

namespace {

void require(bool holds) {
  if (!holds) __builtin_trap();
}

policy::Host some_host(const policy::HostPattern& pattern) {
  if (pattern.kind() == policy::HostPattern::Kind::kExact) return pattern.host();
  const auto below = policy::HostName::parse("w." + pattern.host().text());
  return below.ok() ? policy::Host(*below) : pattern.host();
}

void check_rule(std::string_view text) {
  const auto rule = policy::parse_rule(text);
  if (!rule) return;
  const std::string canonical = policy::to_text(*rule);
  const auto again = policy::parse_rule(canonical);
  require(again.ok() && policy::to_text(*again) == canonical && rule->port != 0);
  require(rule->pattern.kind() != policy::HostPattern::Kind::kAny);
  const bool below = rule->pattern.kind() == policy::HostPattern::Kind::kBelow;
  if (below) require(!policy::is_public_suffix(rule->pattern.host().name()));
  const policy::Host host = some_host(rule->pattern);
  if (below && host == rule->pattern.host()) return;  // no room for a label below it
  require(rule->pattern.matches(host));
  if (below) require(!rule->pattern.matches(rule->pattern.host()));
  if (!cofferdam::is_valid_utf8(text)) return;
  const cofferdam::Json json = {{"version", 1},      {"sandbox", "s"},
                                {"operation", "o"},  {"manifest", "m"},
                                {"mode", "enforce"}, {"rules", {{{"id", "r"}, {"rule", text}}}}};
  const auto made = policy::EgressPolicy::from_json(json);
  require(made.ok());
  const policy::Decision decision = made->decide_name({host, rule->port}, rule->protocol);
  // Only a wildcard over names that are never looked up may fail to allow what it matches.
  require(decision.allowed() == (decision.rule == "r"));
  if (!below) require(decision.allowed());
  const auto other = *policy::HostName::parse("unlisted.name.example");
  if (!rule->pattern.matches(policy::Host(other))) {
    require(!made->decide_lookup(other).allowed());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_rule(text);
  if (const auto deny = policy::parse_deny_rule(text)) {
    if (deny->pattern.kind() != policy::HostPattern::Kind::kAny) {
      const policy::Host host = some_host(deny->pattern);
      if (host != deny->pattern.host()) require(deny->pattern.matches(host));
    }
  }
  (void)policy::EgressPolicy::parse(text).ok();
  return 0;
}
