#include "orchestrator/manifest/manifest.h"

#include <algorithm>

#include "common/base/sha256.h"
#include "common/policy/upstream_proxy.h"
#include "orchestrator/manifest/embedded.h"
#include "orchestrator/manifest/read_yaml.h"
#include "orchestrator/manifest/rights.h"

namespace cofferdam::orchestrator {
namespace {

// Copies json[key] over `field` where it is there. The keys' shapes were checked when they were
// read, so a conversion cannot fail; a caller that hands in other JSON gets the exception's text.
template <typename T>
void take(const Json& json, const char* key, T* field) {
  if (json.contains(key)) *field = json.at(key).get<T>();
}

template <typename T>
void take(const Json& json, const char* key, std::optional<T>* field) {
  if (json.contains(key)) *field = json.at(key).get<T>();
}

void take(const Json& json, const char* key, std::chrono::milliseconds* field) {
  if (json.contains(key)) *field = std::chrono::milliseconds(json.at(key).get<std::int64_t>());
}

void take(const Json& json, const char* key, std::optional<std::chrono::milliseconds>* field) {
  if (json.contains(key)) *field = std::chrono::milliseconds(json.at(key).get<std::int64_t>());
}

void add_texts(const Json& json, const char* key, std::vector<std::string>* field) {
  if (!json.contains(key)) return;
  for (const Json& item : json.at(key)) {
    auto text = item.get<std::string>();
    if (std::find(field->begin(), field->end(), text) == field->end()) {
      field->push_back(std::move(text));
    }
  }
}

// Words of a command: the same one may stand there twice.
void add_words(const Json& json, const char* key, std::vector<std::string>* field) {
  if (json.contains(key)) *field = json.at(key).get<std::vector<std::string>>();
}

Status add_rules(const Json& json, const char* key, std::string_view source,
                 std::vector<NetworkRule>* field) {
  if (!json.contains(key)) return {};
  for (const Json& item : json.at(key)) {
    if (item.is_string()) {
      field->push_back({item.get<std::string>(), std::string(source)});
      continue;
    }
    NetworkRule rule{item.at("rule").get<std::string>(), std::string(source)};
    if (item.contains("budgets")) {
      TRY_ASSIGN(rule.budget, policy::budget_from_json(item.at("budgets"), rule.text));
    }
    field->push_back(std::move(rule));
  }
  return {};
}

const Json& part(const Json& json, const char* key) {
  static const Json empty = Json::object();
  return json.contains(key) ? json.at(key) : empty;
}

void apply_workspace(Manifest* m, const Json& workspace, std::string_view source) {
  take(workspace, "source", &m->workspace);
  add_texts(workspace, "include", &m->include);
  for (const char* action : {"hide", "readonly", "writable"}) {
    if (!workspace.contains(action)) continue;
    for (const Json& item : workspace.at(action)) {
      m->file_rules.push_back({action, item.get<std::string>(), std::string(source)});
    }
  }
  const Json& quota = part(workspace, "quota");
  take(quota, "bytes", &m->quota_bytes);
  take(quota, "entries", &m->quota_entries);
  take(workspace, "xattr", &m->xattr);
}

Status apply_mounts(Manifest* m, const Json& keys) {
  if (keys.contains("mounts")) {
    for (const Json& item : keys.at("mounts")) {
      ExtraMount mount;
      take(item, "source", &mount.source);
      mount.target = mount.source;
      take(item, "target", &mount.target);
      add_texts(item, "hide", &mount.hide);
      mount.cow = item.value("mode", "read-only") == "cow";
      take(item, "recursive", &mount.recursive);
      take(item, "follow_symlink", &mount.follow_symlink);
      take(item, "classification", &mount.classification);
      if (mount.source.empty()) return Error("mounts[].source: missing");
      m->mounts.push_back(std::move(mount));
    }
  }
  for (const Json& item : part(part(keys, "filesystem"), "read")) {
    ExtraMount mount;
    mount.source = mount.target = item.get<std::string>();
    m->mounts.push_back(std::move(mount));
  }
  return {};
}

Status apply_artifacts(Manifest* m, const Json& keys) {
  if (!keys.contains("artifacts")) return {};
  for (const Json& item : keys.at("artifacts")) {
    ArtifactRule rule;
    add_texts(item, "paths", &rule.paths);
    take(item, "owner", &rule.owner);
    take(item, "classification", &rule.classification);
    take(item, "retention", &rule.retention);
    if (rule.paths.empty()) return Error("artifacts[].paths: missing");
    m->artifacts.push_back(std::move(rule));
  }
  return {};
}

// A later one of the same name takes the place of an earlier one.
Status apply_secrets(Manifest* m, const Json& keys) {
  if (!keys.contains("secrets")) return {};
  for (const Json& item : keys.at("secrets")) {
    SecretRule rule;
    take(item, "name", &rule.name);
    const Json& from = part(item, "from");
    take(from, "file", &rule.file);
    take(from, "env", &rule.env);
    add_words(from, "command", &rule.command);
    rule.as_file = item.value("as", "variable") == "file";
    add_texts(item, "commands", &rule.commands);
    if (rule.name.empty()) return Error("secrets[].name: missing");
    if (from.size() != 1 || (from.contains("command") && rule.command.empty())) {
      return Error("secrets[].from: " + rule.name + " comes from one of file, env, command");
    }
    if (rule.commands.empty()) {
      return Error("secrets[].commands: " + rule.name + " is given to no command; name some");
    }
    std::erase_if(m->secrets, [&](const SecretRule& have) { return have.name == rule.name; });
    m->secrets.push_back(std::move(rule));
  }
  return {};
}

// They are a whole: a later list takes the place of an earlier one.
Status apply_phases(Manifest* m, const Json& keys, std::string_view source) {
  if (!keys.contains("phases")) return {};
  m->phases.clear();
  for (const Json& item : keys.at("phases")) {
    PhaseRule phase;
    take(item, "name", &phase.name);
    add_words(item, "command", &phase.command);
    if (phase.name.empty()) return Error("phases[].name: missing");
    if (phase.command.empty()) return Error("phases[].command: " + phase.name + " has none");
    for (const PhaseRule& other : m->phases) {
      if (other.name == phase.name) return Error("phases: " + phase.name + " given twice");
    }
    if (item.contains("network")) {
      phase.rules.emplace();
      TRY(add_rules(item.at("network"), "rules", source, &*phase.rules));
      add_texts(item.at("network"), "presets", &phase.presets);
    }
    for (const auto& [name, value] : part(item, "env").items()) phase.env[name] = value;
    take(item, "timeout", &phase.timeout);
    phase.stop_on_failure = item.value("on_failure", "stop") == "stop";
    m->phases.push_back(std::move(phase));
  }
  return {};
}

// A later one of the same name takes the place of an earlier one.
Status apply_tools(Manifest* m, const Json& keys) {
  if (!keys.contains("tools")) return {};
  Json out = Json::array();
  for (const Json& tool : keys.at("tools")) {
    if (!tool.contains("name")) return Error("tools[].name: missing");
    const Json& name = tool.at("name");
    for (const Json& other : keys.at("tools")) {
      if (&other != &tool && other.value("name", Json()) == name) {
        return Error("tools: " + name.get<std::string>() + " given twice");
      }
    }
    const std::string credential = tool.value("credential", "");
    const bool known =
        std::any_of(m->secrets.begin(), m->secrets.end(),
                    [&](const SecretRule& secret) { return secret.name == credential; });
    if (!credential.empty() && !known) {
      return Error("tools: " + name.get<std::string>() + ": no secret is named " + credential);
    }
    out.push_back(tool);
    if (!tool.contains("approval")) out.back()["approval"] = "auto";
  }
  for (const Json& have : m->tools) {
    const bool replaced = std::any_of(out.begin(), out.end(), [&](const Json& tool) {
      return tool.at("name") == have.at("name");
    });
    if (!replaced) out.push_back(have);
  }
  m->tools = std::move(out);
  return {};
}

// Each budget that is said replaces the one before.
Status apply_budgets(Manifest* m, const Json& budgets) {
  Json all = policy::to_json(m->budget);
  all.update(budgets);
  TRY_ASSIGN(m->budget, policy::budget_from_json(all, "network"));
  return {};
}

Status apply_network(Manifest* m, const Json& network, std::string_view source) {
  take(network, "mode", &m->network_mode);
  TRY(add_rules(network, "rules", source, &m->rules));
  TRY(add_rules(network, "deny", source, &m->deny));
  TRY(apply_budgets(m, part(network, "budgets")));
  take(network, "mixed", &m->mixed);
  add_texts(network, "host_addresses", &m->host_addresses);
  const Json& resolver = part(network, "resolver");
  if (resolver.contains("servers")) m->resolver_servers.clear();
  add_texts(resolver, "servers", &m->resolver_servers);
  take(resolver, "timeout", &m->resolver_timeout);
  take(resolver, "hosts_file", &m->hosts_file);
  add_texts(network, "nat64", &m->nat64);
  const Json& proxy = part(network, "upstream_proxy");
  take(proxy, "url", &m->upstream_proxy);
  take(proxy, "connect", &m->upstream_connect);
  return {};
}

Status apply(Manifest* m, const Json& keys, std::string_view source) {
  take(keys, "name", &m->name);
  take(keys, "tenant", &m->tenant);
  take(keys, "task", &m->task);
  take(keys, "creator", &m->creator);
  take(keys, "policy_version", &m->policy_version);
  take(keys, "expiry", &m->expiry);
  take(keys, "engine", &m->engine);
  take(keys, "image", &m->image);
  take(keys, "mode", &m->mode);
  add_texts(keys, "presets", &m->presets);
  apply_workspace(m, part(keys, "workspace"), source);
  TRY(apply_mounts(m, keys));
  const Json& filesystem = part(keys, "filesystem");
  take(part(filesystem, "tmp"), "size", &m->tmp_bytes);
  take(part(filesystem, "tmp"), "exec", &m->tmp_exec);
  take(part(filesystem, "shm"), "size", &m->shm_bytes);
  TRY(apply_network(m, part(keys, "network"), source));
  const Json& env = part(keys, "env");
  take(env, "inherit", &m->env_inherit);
  add_texts(env, "allow", &m->env_allow);
  for (const auto& [name, value] : part(env, "set").items()) m->env_set[name] = value;
  if (m->env_inherit == "none" && !m->env_allow.empty()) {
    return Error("env: inherit is none, but allow names variables; say `inherit: explicit`");
  }
  const Json& process = part(keys, "process");
  take(process, "pids", &m->pids);
  take(process, "memory", &m->memory_bytes);
  take(process, "cpus", &m->cpus);
  take(process, "timeout", &m->timeout);
  take(process, "grace", &m->grace);
  take(process, "output", &m->output_bytes);
  take(process, "open_files", &m->open_files);
  take(process, "file_size", &m->file_size);
  take(process, "user", &m->user);
  add_texts(process, "capabilities", &m->capabilities);
  take(process, "seccomp", &m->seccomp);
  add_texts(process, "executables", &m->executables);
  const Json& lifetime = part(keys, "lifetime");
  take(lifetime, "max", &m->life_max);
  take(lifetime, "idle", &m->life_idle);
  take(lifetime, "keep", &m->life_keep);
  add_texts(keys, "accept_missing", &m->accept_missing);
  TRY(apply_artifacts(m, keys));
  TRY(apply_secrets(m, keys));
  TRY(apply_tools(m, keys));
  TRY(apply_phases(m, keys, source));
  if (m->upstream_proxy.empty() && part(keys, "network").contains("upstream_proxy")) {
    return Error("network.upstream_proxy: no url");
  }
  if (m->engine == "native" && !m->image.empty()) {
    return Error("image: only the docker engine has one; say `engine: docker`");
  }
  return {};
}

Json rules_json(const std::vector<NetworkRule>& rules) {
  Json out = Json::array();
  for (const NetworkRule& rule : rules) {
    out.push_back({{"rule", rule.text}, {"source", rule.source}});
    if (rule.budget != policy::Budget{}) out.back()["budgets"] = policy::to_json(rule.budget);
  }
  return out;
}

Json artifacts_json(const Manifest& m) {
  Json out = Json::array();
  for (const ArtifactRule& rule : m.artifacts) {
    Json row = {{"paths", rule.paths}};
    if (!rule.owner.empty()) row["owner"] = rule.owner;
    if (!rule.classification.empty()) row["classification"] = rule.classification;
    if (rule.retention) row["retention_ms"] = rule.retention->count();
    out.push_back(std::move(row));
  }
  return out;
}

template <typename Number>
Json number_or_null(const std::optional<Number>& number) {
  return number ? Json(*number) : Json();
}

Json milliseconds(const std::optional<std::chrono::milliseconds>& duration) {
  return duration ? Json(duration->count()) : Json();
}

Json phases_json(const Manifest& m) {
  Json out = Json::array();
  for (const PhaseRule& phase : m.phases) {
    out.push_back({{"name", phase.name},
                   {"command", phase.command},
                   {"env", phase.env},
                   {"timeout_ms", milliseconds(phase.timeout)},
                   {"on_failure", phase.stop_on_failure ? "stop" : "warn"}});
    if (!phase.rules) continue;
    out.back()["network"] = {{"rules", rules_json(*phase.rules)}, {"presets", phase.presets}};
  }
  return out;
}

// Where each comes from and who gets it; no value.
Json secrets_json(const Manifest& m) {
  Json out = Json::array();
  for (const SecretRule& rule : m.secrets) {
    Json from = Json::object();
    if (!rule.file.empty()) from["file"] = rule.file;
    if (!rule.env.empty()) from["env"] = rule.env;
    if (!rule.command.empty()) from["command"] = rule.command;
    out.push_back({{"name", rule.name},
                   {"from", std::move(from)},
                   {"as", rule.as_file ? "file" : "variable"},
                   {"commands", rule.commands}});
  }
  return out;
}

Json upstream_json(const Manifest& m) {
  if (m.upstream_proxy.empty()) return Json();
  return {{"url", policy::without_user(m.upstream_proxy)}, {"connect", m.upstream_connect}};
}

}  // namespace

Status apply_manifest(Manifest* manifest, const Json& keys, std::string_view source,
                      std::string_view origin) {
  try {
    TRY(apply(manifest, keys, source));
    note_origins(keys, origin.empty() ? source : origin, &manifest->origins);
    return {};
  } catch (const Json::exception& error) {
    return Error(error.what());
  }
}

Status apply_template(Manifest* manifest, std::string_view name) {
  const std::string_view text = embedded_template(name);
  if (text.empty()) return Error("no such template: " + std::string(name));
  TRY_ASSIGN(const Json keys, read_manifest_yaml(text, std::string(name) + ".yaml"));
  manifest->from_template = name;
  return apply_manifest(manifest, keys, "template:" + std::string(name));
}

Result<Manifest> default_manifest() {
  TRY_ASSIGN(const Json keys, read_manifest_yaml(embedded_default_manifest(), "default.yaml"));
  Manifest manifest;
  TRY(apply_manifest(&manifest, keys, "default"));
  return manifest;
}

Json manifest_json(const Manifest& m) {
  Json files = Json::array();
  for (const FileRule& rule : m.file_rules) {
    files.push_back({{"action", rule.action}, {"pattern", rule.pattern}, {"source", rule.source}});
  }
  Json mounts = Json::array();
  for (const ExtraMount& mount : m.mounts) {
    mounts.push_back({{"source", mount.source},
                      {"target", mount.target},
                      {"hide", mount.hide},
                      {"mode", mount.cow ? "cow" : "read-only"},
                      {"recursive", mount.recursive},
                      {"follow_symlink", mount.follow_symlink}});
    if (!mount.classification.empty()) mounts.back()["classification"] = mount.classification;
  }
  return {
      {"version", 1},
      {"template", m.from_template},
      {"name", m.name},
      {"engine", m.engine},
      {"image", m.image},
      {"mode", m.mode},
      {"presets", m.presets},
      {"workspace",
       {{"source", m.workspace},
        {"include", m.include},
        {"rules", files},
        {"quota", {{"bytes", m.quota_bytes}, {"entries", m.quota_entries}}},
        {"xattr", m.xattr}}},
      {"mounts", mounts},
      {"filesystem",
       {{"tmp", {{"size", m.tmp_bytes}, {"exec", m.tmp_exec}}}, {"shm", {{"size", m.shm_bytes}}}}},
      {"network",
       {{"mode", m.network_mode},
        {"budgets", policy::to_json(m.budget)},
        {"rules", rules_json(m.rules)},
        {"deny", rules_json(m.deny)},
        {"mixed", m.mixed},
        {"host_addresses", m.host_addresses},
        {"resolver",
         {{"servers", m.resolver_servers},
          {"timeout_ms", m.resolver_timeout.count()},
          {"hosts_file", m.hosts_file}}},
        {"nat64", m.nat64},
        {"upstream_proxy", upstream_json(m)}}},
      {"env", {{"inherit", m.env_inherit}, {"allow", m.env_allow}, {"set", m.env_set}}},
      {"process",
       {{"pids", m.pids},
        {"memory", number_or_null(m.memory_bytes)},
        {"cpus", number_or_null(m.cpus)},
        {"output", number_or_null(m.output_bytes)},
        {"open_files", number_or_null(m.open_files)},
        {"file_size", number_or_null(m.file_size)},
        {"user", m.user},
        {"capabilities", m.capabilities},
        {"seccomp", m.seccomp},
        {"executables", m.executables},
        {"timeout_ms", milliseconds(m.timeout)},
        {"grace_ms", m.grace.count()}}},
      {"lifetime",
       {{"max_ms", milliseconds(m.life_max)},
        {"idle_ms", milliseconds(m.life_idle)},
        {"keep_ms", milliseconds(m.life_keep)}}},
      {"accept_missing", m.accept_missing},
      {"artifacts", artifacts_json(m)},
      {"secrets", secrets_json(m)},
      {"tools", m.tools},
      {"phases", phases_json(m)},
      {"tenant", m.tenant},
      {"task", m.task},
      {"creator", m.creator},
      {"policy_version", m.policy_version},
      {"expiry", m.expiry}};
}

Json stored_manifest_json(const Manifest& manifest) {
  Json json = manifest_json(manifest);
  json["origins"] = manifest.origins;
  return json;
}

std::string manifest_digest(const Manifest& manifest) {
  return "sha256:" + to_hex(sha256(canonical_json(manifest_json(manifest))));
}

}  // namespace cofferdam::orchestrator
