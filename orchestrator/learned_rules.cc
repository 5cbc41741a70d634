#include "orchestrator/learned_rules.h"

#include <algorithm>

#include "common/policy/public_suffix.h"
#include "orchestrator/event_reader.h"

namespace cofferdam::orchestrator {
namespace {

using policy::EgressRule;
using policy::HostPattern;

// "com.example.www tls 00443": sorts by the name from the right.
std::string sort_key(const EgressRule& rule) {
  std::string key;
  const policy::Host& host = rule.pattern.host();
  if (host.is_name()) {
    const auto labels = host.name().labels();
    for (auto label = labels.rbegin(); label != labels.rend(); ++label) {
      key += std::string(*label) + '.';
    }
  } else {
    key = "~" + host.text();  // addresses behind all names
  }
  const std::string port = std::to_string(rule.port);
  return key + " " + std::string(policy::to_text(rule.protocol)) + " " +
         std::string(5 - port.size(), '0') + port;
}

bool opens_all(const EgressRule& wide, const EgressRule& narrow) {
  return std::all_of(narrow.addresses.begin(), narrow.addresses.end(), [&wide](const auto& range) {
    return std::find(wide.addresses.begin(), wide.addresses.end(), range) != wide.addresses.end();
  });
}

bool covers(const EgressRule& wide, const EgressRule& narrow) {
  return wide.protocol == narrow.protocol && wide.port == narrow.port &&
         wide.pattern.matches(narrow.pattern.host()) && opens_all(wide, narrow);
}

// The names below one parent that differ in nothing else; nothing where a wildcard cannot be.
std::string parent_of(const EgressRule& rule) {
  const policy::Host& host = rule.pattern.host();
  if (!host.is_name() || !rule.addresses.empty()) return {};
  const std::string text = host.text();
  const auto dot = text.find('.');
  if (dot == std::string::npos) return {};
  const auto parent = policy::HostName::parse(text.substr(dot + 1));
  if (!parent.ok() || parent->label_count() < 2 || policy::is_public_suffix(*parent)) return {};
  return std::string(policy::to_text(rule.protocol)) + "://*." + parent->text() + ":" +
         std::to_string(rule.port);
}

}  // namespace

std::string short_text(const EgressRule& rule) {
  const std::string full = policy::to_text(rule);
  const auto scheme = full.find("://") + 3;
  std::string ranges;
  std::string host = full.substr(scheme);
  if (const auto equals = host.find('='); equals != std::string::npos) {
    ranges = host.substr(equals);
    host.resize(equals);
  }
  const std::string alone = host.substr(0, host.rfind(':'));
  for (const std::string& text :
       {alone, full.substr(0, scheme) + alone, host, full.substr(0, scheme) + host}) {
    const auto parsed = policy::parse_rule(text + ranges);
    if (parsed.ok() && policy::to_text(*parsed) == full) return text + ranges;
  }
  return full;
}

void RuleLearner::begin_sandbox(const Json& egress_policy) {
  by_id_.clear();
  const auto rules = egress_policy.find("rules");
  if (rules == egress_policy.end() || !rules->is_array()) return;
  for (const Json& entry : *rules) {
    auto rule = policy::parse_rule(event_text(entry, "rule"));
    if (rule.ok()) by_id_.insert_or_assign(event_text(entry, "id"), std::move(rule).value());
  }
}

void RuleLearner::add(const Json& event) {
  const std::string name = event_text(event, "event");
  if (name == "egress") return add_connection(event);
  if (name != "suppressed" || event_text(event, "of") != "egress") return;
  if (const auto folded = parse_json(event_text(event, "fields")); folded.ok()) {
    add_connection(*folded);
  }
}

void RuleLearner::add_connection(const Json& event) {
  if (event_text(event, "verdict") != "allow") return;
  const std::string protocol = event_text(event, "protocol");
  if (protocol.empty()) return;  // it said nothing
  const std::string text =
      protocol + "://" + event_text(event, "host") + ":" + event_text(event, "port");
  auto rule = policy::parse_rule(text);
  if (!rule.ok() || rule->pattern.kind() != HostPattern::Kind::kExact || !rule->addresses.empty()) {
    ++refused_[text];
    return;
  }
  const auto allowed_by = by_id_.find(event_text(event, "rule"));
  if (allowed_by != by_id_.end()) rule->addresses = allowed_by->second.addresses;
  const auto [place, is_new] = learned_.try_emplace(sort_key(*rule), *rule);
  if (is_new) return;
  for (const auto& range : rule->addresses) {
    auto& known = place->second.addresses;
    if (std::find(known.begin(), known.end(), range) == known.end()) known.push_back(range);
  }
}

LearnedRules RuleLearner::result(const std::vector<std::string>& existing, bool wildcards) const {
  std::vector<EgressRule> there;
  for (const std::string& text : existing) {
    if (auto rule = policy::parse_rule(text); rule.ok()) there.push_back(std::move(rule).value());
  }
  std::vector<const EgressRule*> fresh;
  std::map<std::string, std::size_t> siblings;
  for (const auto& [key, rule] : learned_) {
    const bool covered =
        std::any_of(there.begin(), there.end(),
                    [&learned = rule](const auto& one) { return covers(one, learned); });
    if (covered) continue;
    fresh.push_back(&rule);
    ++siblings[parent_of(rule)];
  }
  siblings.erase("");
  LearnedRules out;
  for (const EgressRule* rule : fresh) {
    const auto group = siblings.find(parent_of(*rule));
    if (group == siblings.end() || group->second < kManyNames || !wildcards) {
      out.rules.push_back(short_text(*rule));
      continue;
    }
    const std::string wildcard = short_text(*policy::parse_rule(group->first));
    if (std::find(out.rules.begin(), out.rules.end(), wildcard) == out.rules.end()) {
      out.rules.push_back(wildcard);
    }
  }
  for (const auto& [wildcard, count] : siblings) {
    if (count < kManyNames || wildcards) continue;
    out.notes.push_back(std::to_string(count) + " names are listed one by one; --wildcards would " +
                        "write '" + short_text(*policy::parse_rule(wildcard)) + "' for them");
  }
  for (const auto& [text, count] : refused_) {
    out.notes.push_back("left out, not a rule: " + text + " (" + std::to_string(count) + ")");
  }
  return out;
}

}  // namespace cofferdam::orchestrator
