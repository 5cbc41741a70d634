#include "orchestrator/stored_plan.h"

#include "common/os/files.h"

namespace cofferdam::orchestrator {
namespace {

constexpr const char* kFileName = "plan.json";
constexpr std::size_t kMostBytes = 128U << 20U;

template <typename Value>
Json optional_json(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

template <typename Value>
std::optional<Value> optional_value(const Json& json) {
  if (json.is_null()) return std::nullopt;
  return json.get<Value>();
}

Json limits_json(const LimitsPlan& limits) {
  return {{"pids", optional_json(limits.pids)},
          {"memory", optional_json(limits.memory_bytes)},
          {"cpus", optional_json(limits.cpus)},
          {"timeout_ms", limits.timeout ? Json(limits.timeout->count()) : Json()},
          {"grace_ms", limits.grace.count()},
          {"tmp", limits.tmp_bytes},
          {"tmp_exec", limits.tmp_exec},
          {"shm", limits.shm_bytes},
          {"output", optional_json(limits.output_bytes)},
          {"open_files", optional_json(limits.open_files)},
          {"file_size", optional_json(limits.file_size)}};
}

LimitsPlan parse_limits(const Json& json) {
  LimitsPlan limits;
  limits.pids = optional_value<std::uint32_t>(json.at("pids"));
  limits.memory_bytes = optional_value<std::uint64_t>(json.at("memory"));
  limits.cpus = optional_value<double>(json.at("cpus"));
  if (!json.at("timeout_ms").is_null()) {
    limits.timeout = std::chrono::milliseconds(json["timeout_ms"].get<std::int64_t>());
  }
  limits.grace = std::chrono::milliseconds(json.at("grace_ms").get<std::int64_t>());
  limits.tmp_bytes = json.at("tmp").get<std::uint64_t>();
  limits.tmp_exec = json.at("tmp_exec").get<bool>();
  limits.shm_bytes = json.at("shm").get<std::uint64_t>();
  limits.output_bytes = optional_value<std::uint64_t>(json.at("output"));
  limits.open_files = optional_value<std::uint64_t>(json.at("open_files"));
  limits.file_size = optional_value<std::uint64_t>(json.at("file_size"));
  return limits;
}

Json ids_json(const IdPlan& ids) {
  return {{"caller_uid", ids.caller_uid},
          {"caller_gid", ids.caller_gid},
          {"inside_uid", ids.inside_uid},
          {"inside_gid", ids.inside_gid}};
}

Plan parse_plan(const Json& json, std::vector<std::string>* missing) {
  Plan plan;
  for (const auto& [key, into] : {std::pair{"sandbox", &plan.sandbox_id},
                                  {"name", &plan.sandbox_name},
                                  {"manifest", &plan.manifest_digest},
                                  {"operation", &plan.operation_id},
                                  {"engine", &plan.engine},
                                  {"workspace", &plan.workspace},
                                  {"directory", &plan.directory},
                                  {"home", &plan.home},
                                  {"user", &plan.user_name},
                                  {"hostname", &plan.hostname}}) {
    *into = json.at(key).get<std::string>();
  }
  for (const Json& mount : json.at("mounts")) {
    plan.mounts.push_back(
        {mount.at("name").get<std::string>(), mount.at("inside").get<std::string>(),
         optional_value<std::string>(mount.at("lower")),
         optional_value<std::string>(mount.at("layer")), mount.at("writable").get<bool>()});
  }
  for (const auto& [name, value] : json.at("env").items()) {
    if (value.is_null()) {
      missing->push_back(name);
    } else {
      plan.env[name] = value.get<std::string>();
    }
  }
  plan.files = json.at("files").get<std::map<std::string, std::string>>();
  const Json& ids = json.at("ids");
  plan.ids.caller_uid = ids.at("caller_uid").get<std::uint32_t>();
  plan.ids.caller_gid = ids.at("caller_gid").get<std::uint32_t>();
  plan.ids.inside_uid = ids.at("inside_uid").get<std::uint32_t>();
  plan.ids.inside_gid = ids.at("inside_gid").get<std::uint32_t>();
  plan.limits = parse_limits(json.at("limits"));
  plan.seccomp = json.at("seccomp").get<std::string>();
  plan.executables = json.at("executables").get<std::vector<std::string>>();
  if (const Json& docker = json.at("docker"); !docker.is_null()) {
    plan.docker =
        DockerPlan{docker.at("image").get<std::string>(), docker.at("image_id").get<std::string>(),
                   docker.at("volumes").get<std::vector<std::string>>()};
  }
  plan.trace = json.at("trace");
  return plan;
}

Result<Json> read_policy(const std::filesystem::path& path) {
  TRY_ASSIGN(const std::string text, os::read_file(path, kMostBytes));
  auto json = parse_json(text);
  return json.ok() ? std::move(json) : Result<Json>(json.error().context(path.string()));
}

}  // namespace

Json stored_plan(const Plan& plan, const std::set<std::string>& secret) {
  Json mounts = Json::array();
  for (const MountPlan& mount : plan.mounts) {
    mounts.push_back({{"name", mount.name},
                      {"inside", mount.inside},
                      {"lower", optional_json(mount.lower)},
                      {"layer", optional_json(mount.layer)},
                      {"writable", mount.writable}});
  }
  Json env = Json::object();
  for (const auto& [name, value] : plan.env)
    env[name] = secret.contains(name) ? Json() : Json(value);
  Json docker;
  if (plan.docker) {
    docker = {{"image", plan.docker->image},
              {"image_id", plan.docker->image_id},
              {"volumes", plan.docker->volumes}};
  }
  return {{"version", 1},
          {"sandbox", plan.sandbox_id},
          {"name", plan.sandbox_name},
          {"manifest", plan.manifest_digest},
          {"operation", plan.operation_id},
          {"engine", plan.engine},
          {"workspace", plan.workspace},
          {"directory", plan.directory},
          {"home", plan.home},
          {"user", plan.user_name},
          {"hostname", plan.hostname},
          {"mounts", mounts},
          {"env", env},
          {"files", plan.files},
          {"ids", ids_json(plan.ids)},
          {"limits", limits_json(plan.limits)},
          {"seccomp", plan.seccomp},
          {"executables", plan.executables},
          {"docker", docker},
          {"trace", plan.trace}};
}

Result<RestoredPlan> parse_stored_plan(const Json& json) {
  try {
    if (json.at("version") != 1) return Error("another version");
    RestoredPlan restored;
    restored.plan = parse_plan(json, &restored.missing_variables);
    return restored;
  } catch (const Json::exception& fault) {
    return Error(fault.what());
  }
}

Status save_plan(const SandboxRecord& record, const Plan& plan,
                 const std::set<std::string>& secret) {
  return os::write_file_atomic(record.directory / kFileName,
                               canonical_json(stored_plan(plan, secret)) + "\n");
}

Result<RestoredPlan> load_plan(const SandboxRecord& record) {
  TRY(record.in_no_phase());
  const std::filesystem::path path = record.directory / kFileName;
  TRY_ASSIGN(const std::string text, os::read_file(path, kMostBytes));
  auto json = parse_json(text);
  if (!json.ok()) return json.error().context(path.string());
  auto restored = parse_stored_plan(*json);
  if (!restored.ok()) return restored.error().context(path.string());
  if (restored->plan.sandbox_id != record.id) return Error(path.string() + ": another sandbox's");
  restored->plan.manifest_digest = record.manifest;  // a grant may have changed it
  TRY_ASSIGN(restored->plan.fs_policy, read_policy(record.fs_policy()));
  TRY_ASSIGN(restored->plan.egress_policy, read_policy(record.egress_policy()));
  return restored;
}

}  // namespace cofferdam::orchestrator
