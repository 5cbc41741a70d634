#include "orchestrator/manifest/stored_manifest.h"

#include "common/policy/upstream_proxy.h"
#include "orchestrator/manifest/rights.h"

namespace cofferdam::orchestrator {
namespace {

using Milliseconds = std::chrono::milliseconds;

template <typename T>
void read(const Json& json, const char* key, T* field) {
  json.at(key).get_to(*field);
}

template <typename T>
void read(const Json& json, const char* key, std::optional<T>* field) {
  if (!json.at(key).is_null()) *field = json.at(key).get<T>();
}

void read(const Json& json, const char* key, std::optional<Milliseconds>* field) {
  if (!json.at(key).is_null()) *field = Milliseconds(json.at(key).get<std::int64_t>());
}

Result<std::vector<NetworkRule>> read_rules(const Json& list) {
  std::vector<NetworkRule> rules;
  for (const Json& one : list) {
    NetworkRule rule{one.at("rule").get<std::string>(), one.at("source").get<std::string>()};
    if (one.contains("budgets")) {
      TRY_ASSIGN(rule.budget, policy::budget_from_json(one.at("budgets"), rule.text));
    }
    rules.push_back(std::move(rule));
  }
  return rules;
}

void read_files(const Json& json, Manifest* m) {
  const Json& workspace = json.at("workspace");
  read(workspace, "source", &m->workspace);
  read(workspace, "include", &m->include);
  for (const Json& rule : workspace.at("rules")) {
    m->file_rules.push_back({rule.at("action").get<std::string>(),
                             rule.at("pattern").get<std::string>(),
                             rule.at("source").get<std::string>()});
  }
  read(workspace.at("quota"), "bytes", &m->quota_bytes);
  read(workspace.at("quota"), "entries", &m->quota_entries);
  read(workspace, "xattr", &m->xattr);
  for (const Json& one : json.at("mounts")) {
    ExtraMount mount;
    read(one, "source", &mount.source);
    read(one, "target", &mount.target);
    read(one, "hide", &mount.hide);
    mount.cow = one.at("mode") == "cow";
    read(one, "recursive", &mount.recursive);
    read(one, "follow_symlink", &mount.follow_symlink);
    mount.classification = one.value("classification", "");
    m->mounts.push_back(std::move(mount));
  }
  const Json& filesystem = json.at("filesystem");
  read(filesystem.at("tmp"), "size", &m->tmp_bytes);
  read(filesystem.at("tmp"), "exec", &m->tmp_exec);
  read(filesystem.at("shm"), "size", &m->shm_bytes);
}

Status read_network(const Json& network, Manifest* m) {
  read(network, "mode", &m->network_mode);
  TRY_ASSIGN(m->budget, policy::budget_from_json(network.at("budgets"), "network"));
  TRY_ASSIGN(m->rules, read_rules(network.at("rules")));
  TRY_ASSIGN(m->deny, read_rules(network.at("deny")));
  read(network, "mixed", &m->mixed);
  read(network, "host_addresses", &m->host_addresses);
  const Json& resolver = network.at("resolver");
  read(resolver, "servers", &m->resolver_servers);
  m->resolver_timeout = Milliseconds(resolver.at("timeout_ms").get<std::int64_t>());
  read(resolver, "hosts_file", &m->hosts_file);
  read(network, "nat64", &m->nat64);
  if (const Json& proxy = network.at("upstream_proxy"); !proxy.is_null()) {
    read(proxy, "url", &m->upstream_proxy);
    read(proxy, "connect", &m->upstream_connect);
  }
  return {};
}

void read_process(const Json& process, Manifest* m) {
  read(process, "pids", &m->pids);
  read(process, "memory", &m->memory_bytes);
  read(process, "cpus", &m->cpus);
  read(process, "timeout_ms", &m->timeout);
  m->grace = Milliseconds(process.at("grace_ms").get<std::int64_t>());
  read(process, "output", &m->output_bytes);
  read(process, "open_files", &m->open_files);
  read(process, "file_size", &m->file_size);
  read(process, "user", &m->user);
  read(process, "capabilities", &m->capabilities);
  read(process, "seccomp", &m->seccomp);
  read(process, "executables", &m->executables);
}

Status read_lists(const Json& json, Manifest* m) {
  for (const Json& one : json.at("artifacts")) {
    ArtifactRule rule;
    read(one, "paths", &rule.paths);
    rule.owner = one.value("owner", "");
    rule.classification = one.value("classification", "");
    if (one.contains("retention_ms")) {
      rule.retention = Milliseconds(one.at("retention_ms").get<std::int64_t>());
    }
    m->artifacts.push_back(std::move(rule));
  }
  for (const Json& one : json.at("secrets")) {
    SecretRule rule;
    read(one, "name", &rule.name);
    const Json& from = one.at("from");
    rule.file = from.value("file", "");
    rule.env = from.value("env", "");
    if (from.contains("command")) read(from, "command", &rule.command);
    rule.as_file = one.at("as") == "file";
    read(one, "commands", &rule.commands);
    m->secrets.push_back(std::move(rule));
  }
  for (const Json& one : json.at("phases")) {
    PhaseRule phase;
    read(one, "name", &phase.name);
    read(one, "command", &phase.command);
    read(one, "env", &phase.env);
    read(one, "timeout_ms", &phase.timeout);
    phase.stop_on_failure = one.at("on_failure") == "stop";
    if (one.contains("network")) {
      TRY_ASSIGN(phase.rules, read_rules(one.at("network").at("rules")));
      read(one.at("network"), "presets", &phase.presets);
    }
    m->phases.push_back(std::move(phase));
  }
  m->tools = json.at("tools");
  return {};
}

Status read_all(const Json& json, Manifest* m) {
  for (const auto& [key, field] :
       {std::pair{"template", &m->from_template}, std::pair{"name", &m->name},
        std::pair{"engine", &m->engine}, std::pair{"image", &m->image}, std::pair{"mode", &m->mode},
        std::pair{"tenant", &m->tenant}, std::pair{"task", &m->task},
        std::pair{"creator", &m->creator}, std::pair{"policy_version", &m->policy_version},
        std::pair{"expiry", &m->expiry}}) {
    read(json, key, field);
  }
  read(json, "presets", &m->presets);
  read_files(json, m);
  TRY(read_network(json.at("network"), m));
  read(json.at("env"), "inherit", &m->env_inherit);
  read(json.at("env"), "allow", &m->env_allow);
  read(json.at("env"), "set", &m->env_set);
  read_process(json.at("process"), m);
  read(json.at("lifetime"), "max_ms", &m->life_max);
  read(json.at("lifetime"), "idle_ms", &m->life_idle);
  read(json.at("lifetime"), "keep_ms", &m->life_keep);
  read(json, "accept_missing", &m->accept_missing);
  return read_lists(json, m);
}

}  // namespace

Result<Manifest> parse_stored_manifest(const Json& stored) {
  try {
    Manifest manifest;
    TRY(read_all(stored, &manifest));
    return manifest;
  } catch (const Json::exception& fault) {
    return Error(std::string("manifest.json: ") + fault.what());
  }
}

Result<std::vector<std::string>> beyond_limit(const Manifest& manifest,
                                              const ManifestLimit& limit) {
  Manifest narrowed = manifest;
  narrowed.narrowed.clear();
  TRY(narrow(&narrowed, limit));
  // The password is not stored, so that the two cannot be compared with it.
  narrowed.upstream_proxy = policy::without_user(narrowed.upstream_proxy);
  std::vector<std::string> found;
  for (const std::string& taken : narrowed.narrowed) {
    if (taken.find(": network.upstream_proxy is ") == std::string::npos) found.push_back(taken);
  }
  if (!found.empty()) return found;
  return rights_difference(manifest_json(manifest), manifest_json(narrowed));
}

}  // namespace cofferdam::orchestrator
