#include "orchestrator/plan.h"

#include <algorithm>
#include <array>

#include "common/policy/address_class.h"
#include "common/policy/egress_rule.h"
#include "common/policy/fs_rules.h"
#include "common/policy/upstream_proxy.h"
#include "orchestrator/extra_mounts.h"
#include "orchestrator/make_plan.h"
#include "orchestrator/manifest/quantity.h"

namespace cofferdam::orchestrator {
namespace {

namespace fs = std::filesystem;

// The sandbox brings these itself; nothing is mounted at or above them.
constexpr std::array kReserved = {"/proc", "/sys",  "/dev", "/etc", "/usr",
                                  "/bin",  "/sbin", "/lib", "/run", "/tmp"};

bool lies_in(const fs::path& path, const fs::path& directory) {
  const fs::path rest = path.lexically_relative(directory);
  return !rest.empty() && *rest.begin() != "..";
}

bool accepts_missing(const Manifest& manifest, std::string_view name) {
  return std::find(manifest.accept_missing.begin(), manifest.accept_missing.end(), name) !=
         manifest.accept_missing.end();
}

void add_line(Plan* plan, std::string topic, std::string text) {
  plan->lines.push_back({std::move(topic), std::move(text)});
}

Status check_required(const HostFacts& facts, const Manifest& manifest) {
  for (const HostCheck& check : check_host(facts, manifest.engine)) {
    if (!check.required || check.state == HostCheck::State::kGood) continue;
    return Error("this machine cannot enforce a sandbox: " + check.name + ": " + check.detail +
                 ". Remedy: " + check.remedy);
  }
  return {};
}

Status check_expiry(const PlanRequest& request) {
  const auto expiry = parse_rfc3339(request.manifest.expiry);
  if (!expiry || !request.now || *request.now < *expiry) return {};
  return Error(request.manifest_source + " expired at " + request.manifest.expiry);
}

// Limits that were asked for hold, or the plan is refused, or the manifest accepts their absence.
Status plan_limits(const PlanRequest& request, const HostFacts& facts, Plan* plan) {
  const Manifest& m = request.manifest;
  plan->limits.pids = m.pids;
  plan->limits.timeout = m.timeout;
  plan->limits.grace = m.grace;
  if (const auto expiry = parse_rfc3339(m.expiry); expiry && request.now) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*expiry - *request.now);
    if (!plan->limits.timeout || left < *plan->limits.timeout) plan->limits.timeout = left;
    add_line(plan, "limit", "the manifest expires at " + m.expiry);
  }
  if (m.life_max) {
    if (!plan->limits.timeout || *m.life_max < *plan->limits.timeout) {
      plan->limits.timeout = m.life_max;
    }
    add_line(plan, "limit", "it lives for " + duration_text(*m.life_max) + " in all");
  }
  if (m.life_idle && request.keep) {
    plan->limits.idle = m.life_idle;
    add_line(plan, "limit",
             "it is stopped after " + duration_text(*m.life_idle) + " without a command");
  }
  plan->limits.tmp_bytes = m.tmp_bytes;
  plan->limits.tmp_exec = m.tmp_exec;
  plan->limits.shm_bytes = m.shm_bytes;
  plan->limits.output_bytes = m.output_bytes;
  plan->limits.open_files = m.open_files;
  plan->limits.file_size = m.file_size;
  const auto available = [&](std::string_view controller) {
    const auto& have = facts.cgroups.controllers;
    return m.engine == "docker" || std::find(have.begin(), have.end(), controller) != have.end();
  };
  const auto require = [&](std::string_view name, std::string_view controller) -> Result<bool> {
    if (available(controller)) return true;
    if (accepts_missing(m, name)) {
      add_line(plan, "note",
               std::string(name) +
                   " is not limited: this machine cannot, and the "
                   "manifest accepts it");
      return false;
    }
    for (const HostCheck& check : check_host(facts, m.engine)) {
      if (check.name != "limit " + std::string(controller)) continue;
      return Error("this machine cannot limit " + std::string(name) + ": " + check.detail +
                   ". Remedy: " + check.remedy + "; or accept_missing: [" + std::string(name) +
                   "] in the manifest");
    }
    return Error("this machine cannot limit " + std::string(name));
  };
  if (m.memory_bytes) {
    TRY_ASSIGN(const bool held, require("memory", "memory"));
    if (held) plan->limits.memory_bytes = m.memory_bytes;
  }
  if (m.cpus) {
    TRY_ASSIGN(const bool held, require("cpus", "cpu"));
    if (held) plan->limits.cpus = m.cpus;
  }
  std::string text = "pids " + std::to_string(m.pids);
  if (plan->limits.memory_bytes) text += ", memory " + size_text(*plan->limits.memory_bytes);
  if (plan->limits.cpus) text += ", cpus " + Json(*plan->limits.cpus).dump();
  text += ", time " + (m.timeout ? duration_text(*m.timeout) : std::string("unlimited"));
  text += ", /tmp " + size_text(m.tmp_bytes) + (m.tmp_exec ? "" : " (no programs)");
  if (m.open_files) text += ", open files " + std::to_string(*m.open_files) + " per process";
  if (m.file_size) text += ", one file " + size_text(*m.file_size);
  if (m.output_bytes) text += ", output " + size_text(*m.output_bytes);
  text += ", workspace and HOME " + size_text(m.quota_bytes) + " in " +
          std::to_string(m.quota_entries) + " entries";
  add_line(plan, "limit", text);
  return {};
}

Status plan_extra_mounts(const PlanRequest& request, Plan* plan) {
  const auto overlaps = [&](const std::string& target) {
    return std::any_of(plan->mounts.begin(), plan->mounts.end(),
                       [&](const MountPlan& mount) { return mount.inside == target; });
  };
  if (request.opt_exists && !overlaps("/opt") && !lies_in("/opt", plan->workspace)) {
    plan->mounts.push_back({"opt", "/opt", "/opt", std::nullopt, false});
    add_line(plan, "mount", "/opt, read only");
  }
  int number = 0;
  std::vector<ExtraMount> all = request.manifest.mounts;
  all.insert(all.end(), request.submounts.begin(), request.submounts.end());
  for (const ExtraMount& extra : all) {
    if (extra.target == "/opt") {
      std::erase_if(plan->mounts, [](const MountPlan& mount) { return mount.name == "opt"; });
    }
    if (overlaps(extra.target)) return Error("mounts: two things at " + extra.target);
    for (const char* reserved : kReserved) {
      if (lies_in(reserved, extra.target)) {
        return Error("mounts: nothing can be mounted at " + extra.target +
                     ": the sandbox has its own");
      }
    }
    for (const char* reserved : {"/proc", "/sys", "/dev", "/run/cofferdam"}) {
      if (lies_in(extra.target, reserved)) {
        return Error("mounts: nothing can be mounted in " + std::string(reserved));
      }
    }
    const fs::path state = request.sandbox_directory.parent_path().parent_path();
    if (lies_in(extra.source, state) || lies_in(state, extra.source)) {
      return Error("mounts: " + extra.source + " holds Cofferdam's state directory");
    }
    // The patterns would mean another place there.
    const bool inside =
        lies_in(extra.source, plan->workspace) || lies_in(plan->workspace, extra.source);
    const auto& rules = request.manifest.file_rules;
    const auto hidden = std::find_if(rules.begin(), rules.end(), [](const FileRule& rule) {
      return rule.action == "hide" && names_a_place(rule.pattern);
    });
    if (inside && hidden != rules.end()) {
      return Error("mounts: " + extra.source + " shares files with the workspace, where " +
                   hidden->pattern + " is hidden by its place (" + hidden->source +
                   "). Remedy: hide by name, or leave the mount out");
    }
    MountPlan mount{"mount" + std::to_string(++number), extra.target, extra.source, std::nullopt,
                    extra.cow};
    if (extra.cow) mount.layer = (request.sandbox_directory / "mounts" / mount.name).string();
    plan->mounts.push_back(std::move(mount));
    add_line(
        plan, "mount",
        extra.target +
            (extra.cow ? ", copy on write: what changes there is never merged" : ", read only") +
            (extra.source == extra.target ? "" : ", from " + extra.source) +
            (extra.classification.empty() ? "" : ", " + extra.classification));
  }
  return {};
}

Status plan_mounts(const PlanRequest& request, Plan* plan) {
  const bool writable = request.manifest.mode != "read-only";
  const fs::path& layer = request.sandbox_directory;
  MountPlan workspace{"workspace", plan->workspace, plan->workspace, std::nullopt, writable};
  if (writable) workspace.layer = layer.string();
  plan->mounts.push_back(std::move(workspace));
  add_line(plan, "workspace",
           plan->workspace +
               (writable ? ", copy on write: the original is not touched" : ", read only"));
  plan->mounts.push_back({"home", plan->home, std::nullopt, (layer / "home").string(), true});
  add_line(plan, "home", plan->home + ", starts empty");
  if (request.workspace.git_directory) {
    const std::string path = request.workspace.git_directory->string();
    MountPlan mount{"gitdir", path, path, std::nullopt, writable};
    if (writable) mount.layer = (layer / "gitdir").string();
    plan->mounts.push_back(std::move(mount));
    add_line(plan, "mount",
             path + ", the git directory of this linked worktree, " +
                 (writable ? "copy on write" : "read only"));
  }
  return plan_extra_mounts(request, plan);
}

void add_file_rule_lines(const PlanRequest& request, Plan* plan) {
  std::string only;
  for (const std::string& path : request.manifest.include)
    only += (only.empty() ? "" : "  ") + path;
  if (!only.empty()) add_line(plan, "include", "only " + only);
  for (const char* action : {"hide", "readonly", "writable"}) {
    std::string text;
    for (const FileRule& rule : request.manifest.file_rules) {
      if (rule.action != action) continue;
      text += (text.empty() ? "" : "  ") + rule.pattern +
              (rule.source == "default" ? "" : " (" + rule.source + ")");
    }
    if (!text.empty()) add_line(plan, action, text);
  }
}

// A hidden file that was ever committed can be read from `.git`: say so.
Status add_tracked_note(const PlanRequest& request, Plan* plan) {
  constexpr std::size_t kShown = 5;
  TRY_ASSIGN(const policy::FsRules rules,
             policy::FsRules::parse(plan->fs_policy.at("mounts").at(0).at("rules")));
  std::string names;
  std::size_t count = 0;
  for (const std::string& path : request.tracked) {
    if (rules.decide(path, false).visible()) continue;
    if (++count <= kShown) names += (names.empty() ? "" : ", ") + path;
  }
  if (count == 0) return {};
  if (count > kShown) names += ", and " + std::to_string(count - kShown) + " more";
  add_line(plan, "note",
           "hidden, but tracked by git, so that the committed content can be read in "
           ".git: " +
               names);
  return {};
}

// A name that is written with its own letters is shown with what it stands for: two scripts can
// look alike.
std::string shown_rule(const std::string& text) {
  const bool plain = std::all_of(text.begin(), text.end(),
                                 [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  const auto rule = plain ? Result<policy::EgressRule>(Error("plain")) : policy::parse_rule(text);
  return rule.ok() ? text + " = " + policy::to_text(*rule) : text;
}

// A wildcard that opens nothing, because names below it are only ever opened one by one.
bool opens_nothing(const std::string& text) {
  const auto rule = policy::parse_rule(text);
  return rule.ok() && rule->pattern.kind() == policy::HostPattern::Kind::kBelow &&
         policy::special_name(rule->pattern.host().name()).has_value();
}

// ", at most bytes_up 1000, connections 5", or nothing.
std::string budgets_text(const Json& from) {
  if (!from.contains("budgets")) return {};
  std::string text;
  for (const auto& [key, value] : from.at("budgets").items()) {
    text += (text.empty() ? ", at most " : ", ") + key + " " + value.dump();
  }
  return text;
}

void add_network_lines(Plan* plan) {
  const Json& rules = plan->egress_policy.at("rules");
  const bool monitor = plan->egress_policy.at("mode") == "monitor";
  if (monitor) {
    add_line(plan, "note",
             "network.mode is monitor: NOTHING IS ENFORCED BY NAME. Every public address can be "
             "reached; it is only recorded, for cofferdam manifest learn");
  }
  const bool open = plan->egress_policy.at("mode") == "open";
  if (open) {
    add_line(plan, "network",
             "open: every public address can be reached that is not denied; private ones, metadata "
             "and this machine as ever only by a rule, or not at all");
  }
  if (rules.empty() && !monitor && !open) {
    add_line(plan, "network", "nothing can be reached; to allow a host: --allow HOST");
  }
  for (const Json& rule : rules) {
    add_line(plan, "rule",
             "allow " + shown_rule(rule.at("rule").get<std::string>()) + " (" +
                 rule.at("id").get<std::string>() + ")" + budgets_text(rule));
    if (opens_nothing(rule.at("rule").get<std::string>())) {
      add_line(plan, "note",
               rule.at("rule").get<std::string>() +
                   " opens nothing: names below reserved ones (.internal, .local, .test, .invalid, "
                   "…) are opened one by one; name each host");
    }
  }
  for (const Json& rule : plan->egress_policy.at("deny")) {
    add_line(plan, "rule",
             "deny " + rule.at("rule").get<std::string>() + " (" +
                 rule.at("id").get<std::string>() + ")");
  }
  const Json& egress = plan->egress_policy;
  if (const std::string budgets = budgets_text(egress); !budgets.empty()) {
    add_line(plan, "network", "in all" + budgets);
  }
  if (egress.contains("upstream_proxy")) {
    const Json& proxy = egress.at("upstream_proxy");
    const bool by_name = proxy.at("connect") == "name";
    add_line(plan, "network",
             "through the proxy " + policy::without_user(proxy.at("url").get<std::string>()) +
                 (by_name ? ", which resolves: no address is checked, and the manifest accepts it"
                          : ", to addresses that are resolved and checked here"));
  }
  for (const Json& prefix : egress.at("nat64")) {
    add_line(plan, "network", "NAT64 prefix " + prefix.get<std::string>());
  }
  if (egress.at("resolver").at("hosts_file").get<bool>()) {
    add_line(plan, "network", "names of /etc/hosts count");
  }
}

Status plan_engine(const PlanRequest& request, const HostFacts& facts, Plan* plan) {
  const Manifest& m = request.manifest;
  plan->engine = m.engine;
  plan->ids.caller_uid = facts.uid;
  plan->ids.caller_gid = facts.gid;
  plan->ids.inside_uid = facts.uid;
  plan->ids.inside_gid = facts.gid;
  if (facts.uid == 0) {
    if (!request.id_range) return Error("no range of user ids was chosen");
    plan->ids.take_range(*request.id_range);
  }
  if (m.engine == "native") {
    add_line(plan, "engine",
             "native, " + facts.bwrap.detail + ", kernel " + facts.kernel +
                 (facts.uid == 0 ? ", ids " + std::to_string(*request.id_range) + "+" : ""));
    return {};
  }
  if (facts.uid != 0) return Error("engine docker for a user who is not root: not in this version");
  if (m.image.empty()) return Error("engine docker needs an image: --image REF");
  if (facts.docker.image_id.empty()) {
    return Error("image " + m.image + " is not on this machine. Remedy: docker pull " + m.image);
  }
  plan->docker = DockerPlan{m.image, facts.docker.image_id, facts.docker.image_volumes};
  add_line(plan, "engine", "docker, image " + m.image + " = " + facts.docker.image_id);
  return {};
}

void add_identity_line(const Manifest& m, Plan* plan) {
  std::string text;
  const auto add = [&](const char* what, const std::string& value) {
    if (!value.empty()) text += (text.empty() ? "" : ", ") + std::string(what) + " " + value;
  };
  add("tenant", m.tenant);
  add("task", m.task);
  add("creator", m.creator);
  add("policy version", m.policy_version);
  if (!text.empty()) add_line(plan, "identity", text);
  for (const Json& tool : m.tools) {
    add_line(plan, "tool",
             tool.at("name").get<std::string>() +
                 (tool.contains("server") ? " of " + tool.at("server").get<std::string>() : "") +
                 ", approval " + tool.value("approval", "auto"));
  }
}

// Who gets what, never a value.
Status plan_secrets(const PlanRequest& request, Plan* plan) {
  plan->secrets = request.secrets;
  for (const SecretRule& rule : request.manifest.secrets) {
    const auto read = std::any_of(plan->secrets.begin(), plan->secrets.end(),
                                  [&](const SecretPlan& have) { return have.name == rule.name; });
    const std::string from = !rule.file.empty()      ? rule.file
                             : !rule.command.empty() ? "the command " + rule.command[0]
                                                     : "your variable " + rule.env;
    std::string programs;
    for (const std::string& program : rule.commands) {
      programs += (programs.empty() ? "" : ", ") + program;
    }
    add_line(plan, "secret",
             rule.name + " from " + from + ", as " +
                 (rule.as_file ? "the file /run/secrets/" + rule.name : "a variable") + ", for " +
                 programs + (read ? "" : ": not given, no command of this run is one of them"));
  }
  for (const SecretPlan& secret : plan->secrets) {
    if (!secret.as_file && plan->env.contains(secret.name)) {
      return Error("secret " + secret.name + ": env gives a variable of that name to everything");
    }
  }
  return {};
}

void add_env_line(const PlanRequest& request, Plan* plan) {
  std::string text;
  for (const auto& [name, value] : plan->env) {
    text += (text.empty() ? "" : " ") + name;
    if (request.carried_env.contains(name)) text += "(--env)";
  }
  add_line(plan, "env", text);
}

}  // namespace

Manifest effective_manifest(const PlanRequest& request) {
  Manifest manifest = request.manifest;
  for (const PresetResult& preset : request.presets) {
    for (const std::string& rule : preset.rules) {
      manifest.rules.push_back({rule, "preset:" + preset.name});
    }
  }
  for (const auto& [name, value] : request.carried_env) {
    auto& names = manifest.env_allow;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return manifest;
}

Result<Plan> make_plan(const PlanRequest& request, const HostFacts& facts) {
  if (request.argv.empty() && !request.keep) return Error("no command; say: cofferdam run -- CMD");
  TRY(check_required(facts, request.manifest));
  if (facts.home.empty() || facts.home == "/" ||
      fs::path(facts.home).lexically_normal() != facts.home) {
    return Error("HOME must be an absolute directory that is not /: set HOME");
  }
  TRY(check_expiry(request));
  Plan plan;
  plan.sandbox_id = request.sandbox_id;
  plan.sandbox_name = request.manifest.name.empty() ? request.sandbox_id : request.manifest.name;
  plan.operation_id = request.operation_id;
  plan.manifest_digest = manifest_digest(effective_manifest(request));
  plan.workspace = request.workspace.path.string();
  plan.directory = request.workspace.directory.string();
  plan.home = facts.home;
  plan.user_name = shown_user(request, facts);
  plan.hostname = "cofferdam";
  plan.argv = request.argv;
  plan.interactive = request.interactive;
  plan.terminal = request.terminal;
  plan.keep = request.keep;
  add_line(&plan, "manifest", request.manifest_source + ", " + plan.manifest_digest);
  add_identity_line(request.manifest, &plan);
  TRY(plan_engine(request, facts, &plan));
  TRY(plan_mounts(request, &plan));
  add_file_rule_lines(request, &plan);
  TRY_ASSIGN(plan.fs_policy, make_fs_policy(request, plan));
  TRY_ASSIGN(plan.egress_policy, make_egress_policy(request, plan));
  add_network_lines(&plan);
  TRY_ASSIGN(plan.env, make_env(request, facts));
  for (const PresetResult& preset : request.presets) {
    plan.lines.insert(plan.lines.end(), preset.lines.begin(), preset.lines.end());
    plan.files.insert(preset.files.begin(), preset.files.end());
    for (const std::string& hint : preset.hints) add_line(&plan, "note", hint);
  }
  add_env_line(request, &plan);
  TRY(plan_secrets(request, &plan));
  TRY(plan_phases(request, facts, &plan));
  TRY(plan_limits(request, facts, &plan));
  TRY(plan_process(request, facts, &plan));
  TRY(add_tracked_note(request, &plan));
  for (const std::string& note : request.workspace.notes) add_line(&plan, "note", note);
  for (const std::string& note : request.notes) add_line(&plan, "note", note);
  return plan;
}

}  // namespace cofferdam::orchestrator
