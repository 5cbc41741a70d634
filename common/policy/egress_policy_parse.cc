// egress.json → EgressPolicy.
#include <algorithm>
#include <initializer_list>

#include "common/policy/egress_policy.h"

namespace cofferdam::policy {
namespace {

Status check_keys(const Json& object, std::string_view where,
                  std::initializer_list<std::string_view> known) {
  if (!object.is_object()) return Error(std::string(where) + ": not an object");
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return Error(std::string(where) + ": unknown key '" + key + "'");
    }
  }
  return {};
}

Result<std::string> text_of(const Json& object, const char* key, std::string_view where,
                            bool required) {
  const auto found = object.find(key);
  if (found == object.end()) {
    if (required) return Error(std::string(where) + ": no '" + key + "'");
    return std::string();
  }
  if (!found->is_string()) return Error(std::string(where) + ": '" + key + "' is not text");
  return found->get<std::string>();
}

// The list under `key`; an absent one is empty.
Result<Json> list_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return Json(Json::array());
  if (!found->is_array()) return Error(std::string("policy: '") + key + "' is not a list");
  return Json(*found);
}

}  // namespace

Result<EgressPolicy::Server> parse_server(std::string_view text) {
  if (const auto address = IpAddress::parse(text)) return EgressPolicy::Server{*address, 53};
  TRY_ASSIGN(const Endpoint endpoint, parse_endpoint(text));
  if (endpoint.host.is_name()) return Error("not an address: '" + std::string(text) + "'");
  return EgressPolicy::Server{endpoint.host.address(), endpoint.port};
}

Status EgressPolicy::read_rules(const Json& list) {
  for (const Json& entry : list) {
    TRY(check_keys(entry, "policy: rules", {"id", "rule", "source", "budgets", "expires"}));
    TRY_ASSIGN(std::string id, text_of(entry, "id", "policy: rules", true));
    TRY_ASSIGN(const std::string text, text_of(entry, "rule", "policy: rules", true));
    TRY_ASSIGN(EgressRule rule, parse_rule(text).context("policy: " + id));
    TRY_ASSIGN(rule.source, text_of(entry, "source", "policy: rules", false));
    if (id.empty()) return Error("policy: a rule with an empty id");
    if (const auto budgets = entry.find("budgets"); budgets != entry.end()) {
      TRY_ASSIGN(rule.budget, budget_from_json(*budgets, "policy: " + id));
    }
    if (entry.contains("expires")) {
      TRY_ASSIGN(const std::string expires, text_of(entry, "expires", "policy: " + id, true));
      rule.expires = parse_rfc3339(expires);
      if (!rule.expires) return Error("policy: " + id + ": expires is a time of RFC 3339 in UTC");
    }
    rule.id = std::move(id);
    rules_.push_back(std::move(rule));
  }
  return {};
}

Status EgressPolicy::read_deny(const Json& list) {
  for (const Json& entry : list) {
    TRY(check_keys(entry, "policy: deny", {"id", "rule", "source"}));
    TRY_ASSIGN(std::string id, text_of(entry, "id", "policy: deny", true));
    TRY_ASSIGN(const std::string text, text_of(entry, "rule", "policy: deny", true));
    TRY_ASSIGN(DenyRule rule, parse_deny_rule(text).context("policy: " + id));
    TRY_ASSIGN(rule.source, text_of(entry, "source", "policy: deny", false));
    if (id.empty()) return Error("policy: a deny entry with an empty id");
    rule.id = std::move(id);
    deny_.push_back(std::move(rule));
  }
  return {};
}

Status EgressPolicy::read_resolver(const Json& json) {
  TRY(check_keys(json, "policy: resolver", {"servers", "timeout_ms", "hosts_file"}));
  TRY_ASSIGN(const Json servers, list_of(json, "servers"));
  for (const Json& entry : servers) {
    if (!entry.is_string()) return Error("policy: resolver: a server is not text");
    TRY_ASSIGN(const Server server,
               parse_server(entry.get<std::string>()).context("policy: resolver"));
    servers_.push_back(server);
  }
  if (const auto hosts = json.find("hosts_file"); hosts != json.end()) {
    if (!hosts->is_boolean()) return Error("policy: resolver: hosts_file is true or false");
    use_hosts_file_ = hosts->get<bool>();
  }
  const auto timeout = json.find("timeout_ms");
  if (timeout == json.end()) return {};
  if (!timeout->is_number_integer() || *timeout < 1 || *timeout > 60000) {
    return Error("policy: resolver: timeout_ms is a number from 1 to 60000");
  }
  resolve_timeout_ms_ = timeout->get<std::uint32_t>();
  return {};
}

Status EgressPolicy::read_nat64(const Json& list) {
  for (const Json& entry : list) {
    if (!entry.is_string()) return Error("policy: nat64: an entry is not text");
    TRY_ASSIGN(const Nat64Prefix prefix,
               Nat64Prefix::parse(entry.get<std::string>()).context("policy: nat64"));
    nat64_.push_back(prefix);
  }
  return {};
}

// "name" weakens what is checked, so the policy must say twice that it is meant.
Status EgressPolicy::read_upstream_proxy(const Json& json) {
  TRY_ASSIGN(const Json accepted, list_of(json, "accept_missing"));
  for (const Json& entry : accepted) {
    if (entry != "address_check") return Error("policy: accept_missing: only address_check");
  }
  const auto found = json.find("upstream_proxy");
  if (found == json.end()) return {};
  constexpr std::string_view kWhere = "policy: upstream_proxy";
  TRY(check_keys(*found, kWhere, {"url", "connect"}));
  TRY_ASSIGN(const std::string url, text_of(*found, "url", kWhere, true));
  TRY_ASSIGN(const std::string connect, text_of(*found, "connect", kWhere, false));
  TRY_ASSIGN(UpstreamProxy proxy, parse_upstream_proxy(url).context("policy"));
  if (!connect.empty() && connect != "address" && connect != "name") {
    return Error("policy: upstream_proxy: connect is address or name");
  }
  if (connect == "name") {
    if (accepted.empty()) {
      return Error(
          "policy: upstream_proxy: with connect: name the proxy resolves and no address is "
          "checked; accept that with accept_missing: [address_check], or use connect: address");
    }
    proxy.connect = UpstreamProxy::Connect::kName;
  }
  upstream_proxy_ = std::move(proxy);
  return {};
}

Result<EgressPolicy> EgressPolicy::parse(std::string_view text) {
  auto json = parse_json(text);
  if (json) return from_json(*json);
  // The library shows what it read last, which may be the upstream proxy's password.
  const std::string& message = json.error().message();
  return Error("policy: " + message.substr(0, message.find("; last read")));
}

Result<EgressPolicy> EgressPolicy::from_json(const Json& json) {
  TRY(check_keys(
      json, "policy",
      {"version", "sandbox", "operation", "manifest", "mode", "mixed", "rules", "deny",
       "host_addresses", "resolver", "budgets", "nat64", "upstream_proxy", "accept_missing"}));
  const auto version = json.find("version");
  if (version == json.end() || !version->is_number_integer() || *version != 1) {
    return Error("policy: the version is 1");
  }
  EgressPolicy policy;
  TRY_ASSIGN(policy.sandbox_, text_of(json, "sandbox", "policy", true));
  TRY_ASSIGN(policy.operation_, text_of(json, "operation", "policy", true));
  TRY_ASSIGN(policy.manifest_, text_of(json, "manifest", "policy", true));
  TRY_ASSIGN(const std::string mode, text_of(json, "mode", "policy", true));
  if (mode != "enforce" && mode != "open" && mode != "monitor") {
    return Error("policy: mode is enforce, open or monitor");
  }
  if (mode == "open") policy.mode_ = EgressMode::kOpen;
  if (mode == "monitor") policy.mode_ = EgressMode::kMonitor;
  TRY_ASSIGN(const std::string mixed, text_of(json, "mixed", "policy", false));
  if (!mixed.empty() && mixed != "drop" && mixed != "refuse") {
    return Error("policy: mixed is drop or refuse");
  }
  policy.refuse_mixed_ = mixed == "refuse";
  if (!json.contains("rules")) return Error("policy: no 'rules'");
  TRY_ASSIGN(const Json rules, list_of(json, "rules"));
  TRY(policy.read_rules(rules));
  TRY_ASSIGN(const Json deny_list, list_of(json, "deny"));
  TRY(policy.read_deny(deny_list));
  std::set<std::string> ids;
  for (const EgressRule& rule : policy.rules_) {
    if (!ids.insert(rule.id).second) return Error("policy: the id '" + rule.id + "' is used twice");
  }
  for (const DenyRule& rule : policy.deny_) {
    if (!ids.insert(rule.id).second) return Error("policy: the id '" + rule.id + "' is used twice");
  }
  TRY_ASSIGN(const Json own, list_of(json, "host_addresses"));
  for (const Json& entry : own) {
    if (!entry.is_string()) return Error("policy: host_addresses: an entry is not text");
    TRY_ASSIGN(const Cidr cidr,
               Cidr::parse(entry.get<std::string>()).context("policy: host_addresses"));
    policy.host_addresses_.push_back(cidr);
  }
  TRY_ASSIGN(const Json nat64, list_of(json, "nat64"));
  TRY(policy.read_nat64(nat64));
  TRY(policy.read_upstream_proxy(json));
  if (json.contains("resolver")) TRY(policy.read_resolver(json["resolver"]));
  if (const auto budgets = json.find("budgets"); budgets != json.end()) {
    TRY_ASSIGN(policy.budget_, budget_from_json(*budgets, "policy"));
  }
  policy.build_index();
  return policy;
}

}  // namespace cofferdam::policy
