#include "orchestrator/manifest/narrow.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "common/policy/upstream_proxy.h"
#include "orchestrator/manifest/quantity.h"
#include "orchestrator/manifest/rule_cover.h"

namespace cofferdam::orchestrator {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 3> kModes = {"read-only", "workspace", "open"};
constexpr std::array<std::string_view, 3> kInherit = {"none", "explicit", "safe"};
constexpr std::array<std::string_view, 3> kApprovals = {"deny", "ask", "auto"};

template <std::size_t N>
std::size_t place_of(const std::array<std::string_view, N>& order, std::string_view value) {
  return static_cast<std::size_t>(std::find(order.begin(), order.end(), value) - order.begin());
}

bool lies_in(const fs::path& path, const fs::path& directory) {
  const fs::path rest = path.lexically_relative(directory);
  return !rest.empty() && *rest.begin() != "..";
}

bool holds(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// One manifest under one limit. `l_` is the limit as a manifest of its own keys alone.
class Narrowing final {
 public:
  Narrowing(Manifest* manifest, const ManifestLimit& limit) : m_(*manifest), limit_(limit) {}

  Status run() {
    TRY(apply_manifest(&l_, limit_.keys, "limit", limit_.source).context(limit_.source));
    TRY(must_match("engine", &Manifest::engine));
    TRY(must_match("image", &Manifest::image));
    TRY(must_match("tenant", &Manifest::tenant));
    modes();
    presets();
    TRY(workspace());
    mounts();
    network();
    environment();
    process();
    secrets();
    tools();
    return {};
  }

  bool has(std::string_view path) const {
    const Json* at = &limit_.keys;
    while (!path.empty()) {
      const std::size_t dot = path.find('.');
      const auto found = at->find(std::string(path.substr(0, dot)));
      if (!at->is_object() || found == at->end()) return false;
      at = &*found;
      path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
    }
    return true;
  }

 private:
  void tell(const std::string& what) { m_.narrowed.push_back(limit_.source + ": " + what); }
  void is_of_limit(const std::string& key) { m_.origins[key] = limit_.source; }

  Status must_match(const std::string& key, std::string Manifest::*field) {
    if (!has(key) || m_.*field == l_.*field) return {};
    if ((m_.*field).empty()) {
      m_.*field = l_.*field;
      is_of_limit(key);
      return {};
    }
    return Error(key + ": " + m_.*field + ", but " + limit_.source + " permits only " + l_.*field);
  }

  template <typename T>
  void at_most(const std::string& key, T* value, const T& most, const std::string& shown) {
    if (!has(key) || !(most < *value)) return;
    *value = most;
    is_of_limit(key);
    tell(key + " is at most " + shown);
  }

  template <typename T, typename Show>
  void at_most(const std::string& key, std::optional<T>* value, const std::optional<T>& most,
               const Show& show) {
    if (!has(key) || !most || (*value && !(*most < **value))) return;
    const bool said = value->has_value();
    *value = *most;
    is_of_limit(key);
    if (said) tell(key + " is at most " + show(*most));
  }

  void modes() {
    // A limit that names what can be reached does not mean "everything" unless it says so.
    const bool bounds_network = has("network.rules") || has("presets");
    std::string most = has("mode") ? l_.mode : bounds_network ? "workspace" : "open";
    // To let every public address pass is what mode open is.
    const bool opens = most == "open";
    if (place_of(kModes, most) < place_of(kModes, m_.mode)) {
      m_.mode = std::move(most);
      is_of_limit("mode");
      tell("mode is at most " + m_.mode);
    }
    const bool monitors =
        has("network.mode") ? l_.network_mode == "monitor" : !bounds_network && opens;
    if (m_.network_mode == "monitor" && !monitors) {
      m_.network_mode = "enforce";
      is_of_limit("network.mode");
      tell("network.mode is enforce");
    }
  }

  void presets() {
    if (!has("presets")) return;
    const auto drop = [&](const std::string& name) {
      if (holds(l_.presets, name)) return false;
      tell("preset " + name + " is not permitted");
      return true;
    };
    std::erase_if(m_.presets, drop);
    for (PhaseRule& phase : m_.phases) std::erase_if(phase.presets, drop);
  }

  Status workspace() {
    if (has("workspace.include")) {
      if (m_.include.empty()) {
        m_.include = l_.include;
        for (const std::string& path : l_.include) is_of_limit("workspace.include[" + path + "]");
      }
      std::erase_if(m_.include, [&](const std::string& path) {
        const bool kept =
            std::any_of(l_.include.begin(), l_.include.end(), [&](const std::string& permitted) {
              return path == permitted || lies_in("/" + path, "/" + permitted);
            });
        if (!kept) tell("workspace.include: " + path + " is not permitted");
        return !kept;
      });
      if (m_.include.empty()) return Error("workspace.include: nothing of it is permitted");
    }
    // Last, so that nothing lifts them.
    for (const FileRule& rule : l_.file_rules) {
      if (rule.action == "writable") continue;
      m_.file_rules.push_back({rule.action, rule.pattern, limit_.source});
      is_of_limit("workspace." + rule.action + "[" + rule.pattern + "]");
    }
    at_most("workspace.quota.bytes", &m_.quota_bytes, l_.quota_bytes, size_text(l_.quota_bytes));
    at_most("workspace.quota.entries", &m_.quota_entries, l_.quota_entries,
            std::to_string(l_.quota_entries));
    at_most("workspace.xattr", &m_.xattr, l_.xattr, "false");
    at_most("filesystem.tmp.size", &m_.tmp_bytes, l_.tmp_bytes, size_text(l_.tmp_bytes));
    at_most("filesystem.shm.size", &m_.shm_bytes, l_.shm_bytes, size_text(l_.shm_bytes));
    at_most("filesystem.tmp.exec", &m_.tmp_exec, l_.tmp_exec, "false");
    return {};
  }

  // Patterns that name a place are meant from the limit's own root.
  static bool hides_by_place(const ExtraMount& mount) {
    return std::any_of(mount.hide.begin(), mount.hide.end(), [](const std::string& pattern) {
      return pattern.substr(0, pattern.size() - 1).find('/') != std::string::npos;
    });
  }

  void mounts() {
    if (!has("mounts") && !has("filesystem.read")) return;
    std::erase_if(m_.mounts, [&](ExtraMount& mount) {
      for (const ExtraMount& permitted : l_.mounts) {
        if (!lies_in(mount.source, permitted.source)) continue;
        if (mount.source != permitted.source && hides_by_place(permitted)) continue;
        if (mount.cow && !permitted.cow) tell("mounts: " + mount.source + " is read only");
        mount.cow = mount.cow && permitted.cow;
        mount.recursive = mount.recursive && permitted.recursive;
        mount.follow_symlink =
            mount.follow_symlink && permitted.follow_symlink && mount.source == permitted.source;
        if (mount.classification.empty()) mount.classification = permitted.classification;
        mount.hide.insert(mount.hide.end(), permitted.hide.begin(), permitted.hide.end());
        return false;
      }
      tell("mounts: " + mount.source + " is not permitted");
      return true;
    });
  }

  void rules_within(std::vector<NetworkRule>* rules) {
    std::vector<NetworkRule> kept;
    for (const NetworkRule& rule : *rules) {
      const std::string preset =
          rule.source.starts_with("preset:") ? rule.source.substr(7) : std::string();
      if (!preset.empty() && holds(l_.presets, preset)) {
        kept.push_back(rule);
        continue;
      }
      std::vector<NetworkRule> left = within(rule, l_.rules);
      if (left.empty()) tell("network.rules: " + rule.text + " is not permitted");
      for (NetworkRule& one : left) {
        if (one.text != rule.text) {
          tell("network.rules: of " + rule.text + " only " + one.text);
          one.source = rule.source;
          is_of_limit("network.rules[" + one.text + "]");
        }
        kept.push_back(std::move(one));
      }
    }
    *rules = std::move(kept);
  }

  void network() {
    if (has("network.rules")) {
      rules_within(&m_.rules);
      for (PhaseRule& phase : m_.phases) {
        if (phase.rules) rules_within(&*phase.rules);
      }
    }
    for (const NetworkRule& rule : l_.deny) {
      m_.deny.push_back({rule.text, limit_.source, {}});
      is_of_limit("network.deny[" + rule.text + "]");
    }
    const policy::Budget before = m_.budget;
    m_.budget = smaller(m_.budget, l_.budget);
    const Json left = policy::to_json(m_.budget);
    for (const auto& [key, value] : left.items()) {
      if (policy::to_json(before).value(key, Json()) != value)
        is_of_limit("network.budgets." + key);
    }
    if (l_.mixed == "refuse" && m_.mixed != "refuse") {
      m_.mixed = l_.mixed;
      is_of_limit("network.mixed");
    }
    add_all("network.host_addresses", &m_.host_addresses, l_.host_addresses);
    add_all("network.nat64", &m_.nat64, l_.nat64);
    if (has("network.resolver.servers")) {
      m_.resolver_servers = l_.resolver_servers;
      is_of_limit("network.resolver.servers");
    }
    at_most("network.resolver.hosts_file", &m_.hosts_file, l_.hosts_file, "false");
    if (has("network.upstream_proxy")) {
      if (!m_.upstream_proxy.empty() && m_.upstream_proxy != l_.upstream_proxy) {
        tell("network.upstream_proxy is " + policy::without_user(l_.upstream_proxy));
      }
      m_.upstream_proxy = l_.upstream_proxy;
      m_.upstream_connect = l_.upstream_connect;
      is_of_limit("network.upstream_proxy.url");
      is_of_limit("network.upstream_proxy.connect");
    }
  }

  void add_all(const std::string& key, std::vector<std::string>* to,
               const std::vector<std::string>& from) {
    for (const std::string& text : from) {
      if (holds(*to, text)) continue;
      to->push_back(text);
      is_of_limit(key + "[" + text + "]");
    }
  }

  void environment() {
    if (has("env.inherit") &&
        place_of(kInherit, l_.env_inherit) < place_of(kInherit, m_.env_inherit)) {
      m_.env_inherit = l_.env_inherit;
      is_of_limit("env.inherit");
      tell("env.inherit is at most " + m_.env_inherit);
    }
    if (has("env.allow") || (has("env.inherit") && l_.env_inherit == "none")) {
      std::erase_if(m_.env_allow, [&](const std::string& name) {
        if (holds(l_.env_allow, name)) return false;
        tell("env.allow: " + name + " is not permitted");
        return true;
      });
    }
    for (const auto& [name, value] : l_.env_set) {
      m_.env_set[name] = value;
      for (PhaseRule& phase : m_.phases) phase.env.erase(name);
      is_of_limit("env.set." + name);
    }
  }

  // Who the programs are, which they are, and what they may ask of the kernel.
  void programs() {
    if (has("process.user") && l_.user == "caller" && m_.user != "caller") {
      m_.user = "caller";
      is_of_limit("process.user");
      tell("process.user is caller");
    }
    if (l_.seccomp == "strict" && m_.seccomp != "strict") {
      m_.seccomp = "strict";
      is_of_limit("process.seccomp");
      tell("process.seccomp is strict");
    }
    if (has("process.capabilities")) {
      std::erase_if(m_.capabilities, [&](const std::string& name) {
        if (holds(l_.capabilities, name)) return false;
        tell("process.capabilities: " + name + " is not permitted");
        return true;
      });
    }
    if (!has("process.executables") || l_.executables.empty()) return;
    if (m_.executables.empty()) {
      m_.executables = l_.executables;
      for (const std::string& path : l_.executables) {
        is_of_limit("process.executables[" + path + "]");
      }
      return;
    }
    std::vector<std::string> kept;
    for (const std::string& path : m_.executables) {
      const bool inside =
          std::any_of(l_.executables.begin(), l_.executables.end(),
                      [&](const std::string& permitted) { return lies_in(path, permitted); });
      if (inside) {
        kept.push_back(path);
      } else {
        tell("process.executables: " + path + " is not permitted");
      }
    }
    // None left would mean everything.
    m_.executables = kept.empty() ? l_.executables : std::move(kept);
  }

  void process() {
    at_most("process.pids", &m_.pids, l_.pids, std::to_string(l_.pids));
    at_most("process.memory", &m_.memory_bytes, l_.memory_bytes,
            [](std::uint64_t bytes) { return size_text(bytes); });
    at_most("process.cpus", &m_.cpus, l_.cpus, [](double cpus) { return Json(cpus).dump(); });
    at_most("process.timeout", &m_.timeout, l_.timeout,
            [](std::chrono::milliseconds time) { return duration_text(time); });
    at_most("process.grace", &m_.grace, l_.grace, duration_text(l_.grace));
    const auto size = [](std::uint64_t bytes) { return size_text(bytes); };
    at_most("process.output", &m_.output_bytes, l_.output_bytes, size);
    at_most("process.file_size", &m_.file_size, l_.file_size, size);
    at_most("process.open_files", &m_.open_files, l_.open_files,
            [](std::uint64_t count) { return std::to_string(count); });
    programs();
    const auto time = [](std::chrono::milliseconds value) { return duration_text(value); };
    at_most("lifetime.max", &m_.life_max, l_.life_max, time);
    at_most("lifetime.idle", &m_.life_idle, l_.life_idle, time);
    at_most("lifetime.keep", &m_.life_keep, l_.life_keep, time);
    if (has("expiry") && (m_.expiry.empty() || l_.expiry < m_.expiry)) {
      m_.expiry = l_.expiry;
      is_of_limit("expiry");
    }
    // A limit that is demanded here is not given up there.
    std::erase_if(m_.accept_missing, [&](const std::string& name) {
      const bool demanded = has("accept_missing") || has("process." + name) ||
                            (name == "address_check" && has("network"));
      if (!demanded || holds(l_.accept_missing, name)) return false;
      tell("accept_missing: " + name + " is not permitted");
      return true;
    });
  }

  // By name; where it comes from is what the limit says.
  void secrets() {
    if (!has("secrets")) return;
    std::erase_if(m_.secrets, [&](SecretRule& secret) {
      for (const SecretRule& permitted : l_.secrets) {
        if (permitted.name != secret.name) continue;
        secret.file = permitted.file;
        secret.env = permitted.env;
        secret.command = permitted.command;
        std::erase_if(secret.commands, [&](const std::string& program) {
          return !holds(permitted.commands, program);
        });
        if (!secret.commands.empty()) return false;
      }
      tell("secrets: " + secret.name + " is not permitted");
      return true;
    });
  }

  void tools() {
    if (!has("tools")) return;
    Json kept = Json::array();
    for (Json tool : m_.tools) {
      const auto permitted = std::find_if(l_.tools.begin(), l_.tools.end(), [&](const Json& other) {
        return other.at("name") == tool.at("name") &&
               other.value("server", "") == tool.value("server", "");
      });
      if (permitted == l_.tools.end()) {
        tell("tools: " + tool.at("name").get<std::string>() + " is not permitted");
        continue;
      }
      for (const char* list : {"actions", "scope"}) {
        if (!permitted->contains(list)) continue;
        Json common = Json::array();
        for (const Json& one : permitted->at(list)) {
          const Json& own = tool.contains(list) ? tool.at(list) : permitted->at(list);
          if (std::find(own.begin(), own.end(), one) != own.end()) common.push_back(one);
        }
        tool[list] = std::move(common);
      }
      const std::string most = permitted->value("approval", "auto");
      if (place_of(kApprovals, most) < place_of(kApprovals, tool.value("approval", "auto"))) {
        tool["approval"] = most;
      }
      for (const char* number : {"calls_per_minute", "cost"}) {
        if (!permitted->contains(number)) continue;
        const Json& bound = permitted->at(number);
        if (!tool.contains(number) || bound < tool.at(number)) tool[number] = bound;
      }
      kept.push_back(std::move(tool));
    }
    m_.tools = std::move(kept);
  }

  Manifest& m_;
  const ManifestLimit& limit_;
  Manifest l_;
};

}  // namespace

Status narrow(Manifest* manifest, const ManifestLimit& limit) {
  return Narrowing(manifest, limit).run();
}

std::string mode_fault(const ManifestLimit& limit, std::string_view mode) {
  Manifest probe;
  probe.mode = mode;
  probe.engine = limit.keys.value("engine", probe.engine);
  if (const Status done = narrow(&probe, limit); !done.ok()) return done.error().message();
  return probe.mode == mode ? "" : limit.source + " permits at most mode " + probe.mode;
}

Result<NetworkRule> permitted_rule(const ManifestLimit& limit, std::string_view rule) {
  Manifest probe;
  probe.engine = limit.keys.value("engine", probe.engine);
  probe.rules.push_back({std::string(rule), "grant", {}});
  TRY(narrow(&probe, limit));
  const bool kept = probe.rules.size() == 1 && probe.rules[0].text == rule;
  if (!kept) return Error(limit.source + " does not permit " + std::string(rule));
  return probe.rules[0];
}

}  // namespace cofferdam::orchestrator
