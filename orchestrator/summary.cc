#include "orchestrator/summary.h"

#include <array>
#include <cstdio>

#include "common/policy/reason.h"
#include "orchestrator/event_reader.h"

namespace cofferdam::orchestrator {
namespace {

using policy::Reason;

// A host with the port, IPv6 in brackets.
std::string endpoint_text(const Json& event) {
  std::string host = event_text(event, "host");
  if (host.empty()) host = event_text(event, "address");
  if (host.find(':') != std::string::npos && host[0] != '[') host = "[" + host + "]";
  const std::string port = event_text(event, "port");
  return port.empty() || port == "0" ? host : host + ":" + port;
}

// Paths are relative to their mount: those of the workspace stay so, HOME's begin with "~/".
std::string path_text(const Json& event) {
  const std::string mount = event_text(event, "mount");
  const std::string path = event_text(event, "path");
  if (mount.empty() || mount == "workspace") return path.empty() ? "." : path;
  return (mount == "home" ? "~" : mount + ":") + "/" + path;
}

Json group_json(const std::vector<Summary::Denied>& groups) {
  Json out = Json::array();
  for (const Summary::Denied& group : groups) {
    out.push_back({{"what", group.what},
                   {"reason", group.reason},
                   {"rule", group.rule},
                   {"hint", group.hint},
                   {"count", group.count}});
  }
  return out;
}

void add_group_lines(const char* title, const std::vector<Summary::Denied>& groups,
                     std::vector<std::string>* out) {
  constexpr std::size_t kShown = 20;
  if (groups.empty()) return;
  out->emplace_back(title);
  for (std::size_t i = 0; i < groups.size() && i < kShown; ++i) {
    const Summary::Denied& group = groups[i];
    std::string line = "  " + group.what + "  " + group.reason;
    if (!group.rule.empty()) line += " (" + group.rule + ")";
    if (group.count > 1) line += "  ×" + std::to_string(group.count);
    out->push_back(line);
    if (!group.hint.empty()) out->push_back("      to allow: " + group.hint);
  }
  if (groups.size() > kShown) {
    out->push_back("  and " + std::to_string(groups.size() - kShown) + " more: cofferdam why last");
  }
}

}  // namespace

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

std::string describe_act(const Json& event) {
  const std::string name = event_text(event, "event");
  if (name == "dns") return "resolve " + event_text(event, "host");
  if (name == "file") {
    const std::string act = event_text(event, "act");
    return (act.empty() ? "touch" : act) + " " + path_text(event);
  }
  if (name == "syscall") return "call " + event_text(event, "syscall");
  if (name == "egress") {
    const std::string method = event_text(event, "method");
    if (!method.empty()) return method + " " + endpoint_text(event) + event_text(event, "path");
    return "connect " + endpoint_text(event);
  }
  return name;
}

std::string hint_for(const Json& event) {
  if (std::string own = event_text(event, "hint"); !own.empty()) return own;
  const auto reason = policy::reason_from_text(event_text(event, "reason"));
  const std::string name = event_text(event, "event");
  const std::string host = event_text(event, "host");
  if (!reason || (name != "dns" && name != "egress") || host.empty()) return "";
  if (*reason == Reason::kNoRule && name == "dns") return "--allow " + host;
  if (*reason == Reason::kNoRule || *reason == Reason::kPortNotAllowed) {
    const std::string endpoint = endpoint_text(event);
    return "--allow " + (endpoint.ends_with(":443") ? host : endpoint);
  }
  return "";
}

void Summary::add(const Json& event) {
  const std::string name = event_text(event, "event");
  if (name == "limit") {
    const std::string value = event_text(event, "value");
    const std::string limit = event_text(event, "limit");
    limits_.push_back(limit + (value.empty() ? "" : " " + value) +
                      (limit == "timeout" ? " ms" : ""));
    return;
  }
  if (name == "suppressed") {
    auto fields = parse_json(event_text(event, "fields"));
    if (!fields.ok() || !fields->is_object()) return;
    (*fields)["event"] = event_text(event, "of");
    return add_decision(*fields, event_number(event, "count"));
  }
  add_decision(event, 1);
}

void Summary::add_decision(const Json& event, std::uint64_t count) {
  const std::string verdict = event_text(event, "verdict");
  if (verdict == "allow") {
    if (event_text(event, "event") != "egress") return;
    Host& host = hosts_[endpoint_text(event)];
    host.connections += count;
    host.bytes_up += event_number(event, "bytes_up");
    host.bytes_down += event_number(event, "bytes_down");
    return;
  }
  if (verdict != "deny" && verdict != "error") return;
  const bool deny = verdict == "deny";
  auto& groups = deny ? denied_ : errors_;
  auto& index = deny ? denied_index_ : error_index_;
  const std::string what = describe_act(event);
  const std::string reason = event_text(event, "reason");
  const auto [found, fresh] = index.try_emplace(what + "\n" + reason, groups.size());
  if (fresh) {
    groups.push_back({what, reason, event_text(event, "rule"), hint_for(event), 0});
  }
  groups[found->second].count += count;
}

Json Summary::to_json() const {
  Json hosts = Json::object();
  for (const auto& [name, host] : hosts_) {
    hosts[name] = {{"connections", host.connections},
                   {"bytes_up", host.bytes_up},
                   {"bytes_down", host.bytes_down}};
  }
  return {{"denied", group_json(denied_)},
          {"errors", group_json(errors_)},
          {"hosts", hosts},
          {"limits", limits_}};
}

std::vector<std::string> Summary::lines() const {
  std::vector<std::string> out;
  add_group_lines("denied:", denied_, &out);
  add_group_lines("allowed, but failed:", errors_, &out);
  if (!hosts_.empty()) out.emplace_back("reached:");
  for (const auto& [name, host] : hosts_) {
    out.push_back("  " + name + "  " + std::to_string(host.connections) +
                  (host.connections == 1 ? " connection, " : " connections, ") +
                  bytes_text(host.bytes_up) + " up, " + bytes_text(host.bytes_down) + " down");
  }
  for (const std::string& limit : limits_) out.push_back("limit hit: " + limit);
  return out;
}

}  // namespace cofferdam::orchestrator
