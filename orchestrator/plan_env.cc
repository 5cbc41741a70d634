// The workload's environment, and the plan as JSON.
#include <algorithm>
#include <array>
#include <cctype>

#include "common/base/escape.h"
#include "common/policy/upstream_proxy.h"
#include "orchestrator/make_plan.h"
#include "orchestrator/manifest/check_value.h"

namespace cofferdam::orchestrator {
namespace {

constexpr std::array kPath = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                              "/usr/bin",        "/sbin",          "/bin"};

bool is_plain(std::string_view value) {
  return value.size() <= 256 && std::all_of(value.begin(), value.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  std::string_view("_.@-+:/,=").find(c) != std::string_view::npos;
         });
}

std::string path_variable(const PlanRequest& request) {
  std::string out;
  const auto add = [&](const std::string& directory) {
    out += (out.empty() ? "" : ":") + directory;
  };
  for (const char* directory : kPath) add(directory);
  for (const std::string& directory : request.system_path) {
    if (std::find(kPath.begin(), kPath.end(), directory) == kPath.end()) add(directory);
  }
  return out;
}

void add_safe(const PlanRequest& request, std::map<std::string, std::string>* env) {
  for (const auto& [name, value] : request.host_env) {
    const bool wanted = name == "LANG" || name == "LANGUAGE" || name == "TZ" ||
                        name.starts_with("LC_") || (name == "TERM" && request.terminal);
    if (wanted && is_plain(value)) (*env)[name] = value;
  }
  if (!env->contains("LANG") && !env->contains("LC_ALL")) (*env)["LANG"] = "C.UTF-8";
}

bool is_proxy_variable(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name.ends_with("_proxy");
}

// An image's own variables, PATH above all: its programs lie where the image says. They come from
// no user, so that one that could not be asked for is left out.
void add_of_image(const HostFacts& facts, std::map<std::string, std::string>* env) {
  for (const auto& [name, value] : facts.docker.image_env) {
    const bool ours = name == "HOME" || name == "USER" || name == "LOGNAME" || name == "HOSTNAME";
    if (!ours && !is_proxy_variable(name) && !variable_fault(name, value)) (*env)[name] = value;
  }
}

void hide_password(Json* egress) {
  if (!egress->contains("upstream_proxy")) return;
  Json& url = (*egress)["upstream_proxy"]["url"];
  url = policy::without_user(url.get<std::string>());
}

}  // namespace

std::string shown_user(const PlanRequest& request, const HostFacts& facts) {
  if (request.manifest.user == "root") return "root";
  return facts.user_name.empty() ? "user" : facts.user_name;
}

Result<std::map<std::string, std::string>> make_env(const PlanRequest& request,
                                                    const HostFacts& facts) {
  const std::string user = shown_user(request, facts);
  std::map<std::string, std::string> env = {
      {"PATH", path_variable(request)}, {"HOME", facts.home}, {"USER", user}, {"LOGNAME", user}};
  if (request.manifest.engine == "docker") add_of_image(facts, &env);
  if (request.manifest.env_inherit == "safe") add_safe(request, &env);
  if (request.terminal && !env.contains("TERM")) env["TERM"] = "xterm-256color";
  for (const PresetResult& preset : request.presets) {
    for (const auto& [name, value] : preset.env) env[name] = value;
  }
  for (const auto& [name, value] : request.manifest.env_set) env[name] = value;
  for (const std::string& name : request.manifest.env_allow) {
    if (const auto found = request.host_env.find(name); found != request.host_env.end()) {
      env[name] = found->second;
    }
  }
  for (const auto& [name, value] : request.carried_env) env[name] = value;
  for (const auto& [name, value] : env) {
    if (auto fault = variable_fault(name, value)) return Error("env: " + *fault);
  }
  return env;
}

Json plan_json(const Plan& plan, const std::map<std::string, std::string>& secret) {
  Json mounts = Json::array();
  for (const MountPlan& mount : plan.mounts) {
    mounts.push_back({{"name", mount.name},
                      {"inside", mount.inside},
                      {"lower", mount.lower ? Json(*mount.lower) : Json()},
                      {"layer", mount.layer ? Json(*mount.layer) : Json()},
                      {"writable", mount.writable}});
  }
  Json env = Json::object();
  for (const auto& [name, value] : plan.env)
    env[name] = secret.contains(name) ? Json() : Json(value);
  Json files = Json::object();
  for (const auto& [path, content] : plan.files) files[path] = content.size();
  Json lines = Json::array();
  for (const PlanLine& line : plan.lines)
    lines.push_back({{"topic", line.topic}, {"text", line.text}});
  const LimitsPlan& limits = plan.limits;
  Json argv = Json::array();
  for (const std::string& word : plan.argv) argv.push_back(to_json_text(word));
  Json json = {{"sandbox", plan.sandbox_id},
               {"name", plan.sandbox_name},
               {"operation", plan.operation_id},
               {"manifest", plan.manifest_digest},
               {"engine", plan.engine},
               {"workspace", plan.workspace},
               {"directory", plan.directory},
               {"home", plan.home},
               {"mounts", mounts},
               {"fs_policy", plan.fs_policy},
               {"egress_policy", plan.egress_policy},
               {"argv", argv},
               {"env", env},
               {"files", files},
               {"ids",
                {{"caller_uid", plan.ids.caller_uid},
                 {"caller_gid", plan.ids.caller_gid},
                 {"range_base", plan.ids.range_base ? Json(*plan.ids.range_base) : Json()},
                 {"inside_uid", plan.ids.inside_uid},
                 {"inside_gid", plan.ids.inside_gid},
                 {"service_uid", plan.ids.service_uid}}},
               {"limits",
                {{"pids", limits.pids ? Json(*limits.pids) : Json()},
                 {"memory", limits.memory_bytes ? Json(*limits.memory_bytes) : Json()},
                 {"cpus", limits.cpus ? Json(*limits.cpus) : Json()},
                 {"timeout_ms", limits.timeout ? Json(limits.timeout->count()) : Json()},
                 {"grace_ms", limits.grace.count()},
                 {"tmp", limits.tmp_bytes},
                 {"tmp_exec", limits.tmp_exec},
                 {"shm", limits.shm_bytes},
                 {"output", limits.output_bytes ? Json(*limits.output_bytes) : Json()},
                 {"open_files", limits.open_files ? Json(*limits.open_files) : Json()},
                 {"file_size", limits.file_size ? Json(*limits.file_size) : Json()}}},
               {"seccomp", plan.seccomp},
               {"executables", plan.executables},
               {"interactive", plan.interactive},
               {"terminal", plan.terminal},
               {"lines", lines}};
  json["phases"] = Json::array();
  for (const PhasePlan& phase : plan.phases) {
    Json row = {{"name", phase.name},
                {"argv", Json::array()},
                {"egress_policy", phase.egress_policy},
                {"timeout_ms", phase.timeout ? Json(phase.timeout->count()) : Json()},
                {"on_failure", phase.stop_on_failure ? "stop" : "warn"}};
    for (const std::string& word : phase.argv) row["argv"].push_back(to_json_text(word));
    hide_password(&row["egress_policy"]);
    json["phases"].push_back(std::move(row));
  }
  // What is printed holds no password.
  hide_password(&json["egress_policy"]);
  json["docker"] = plan.docker
                       ? Json{{"image", plan.docker->image}, {"image_id", plan.docker->image_id}}
                       : Json();
  return json;
}

}  // namespace cofferdam::orchestrator
