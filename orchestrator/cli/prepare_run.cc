#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "common/os/regular_file.h"
#include "orchestrator/cli/run.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/extra_mounts.h"
#include "orchestrator/git_index.h"
#include "orchestrator/given_secrets.h"
#include "orchestrator/manifest/check_value.h"
#include "orchestrator/manifest/keys.h"
#include "orchestrator/manifest/sources.h"

namespace cofferdam::orchestrator::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSource = "cli";

// One value of the line, checked as the manifest's key of the same meaning is.
Result<Json> checked(const char* flag, const char* key, const std::string& text) {
  const KeySpec* spec = find_key(key);
  if (spec == nullptr) return Error(std::string(flag) + ": no such key: " + key);
  auto value = check_value(*spec, text);
  if (!value.ok()) return value.error().context(std::string(flag) + " " + text);
  return value;
}

Status put(Json* into, const char* flag, const char* key, const std::string& text) {
  if (text.empty()) return {};
  TRY_ASSIGN(Json value, checked(flag, key, text));
  const std::string path(key);
  const std::size_t dot = path.find('.');
  if (dot == std::string::npos) {
    (*into)[path] = std::move(value);
  } else {
    (*into)[path.substr(0, dot)][path.substr(dot + 1)] = std::move(value);
  }
  return {};
}

Status put_list(Json* into, const char* flag, const char* key,
                const std::vector<std::string>& texts) {
  if (texts.empty()) return {};
  Json list = Json::array();
  for (const std::string& text : texts) {
    TRY_ASSIGN(Json value, checked(flag, key, text));
    list.push_back(std::move(value));
  }
  const std::string path(key);
  const std::size_t dot = path.find('.');
  if (dot == std::string::npos) {
    (*into)[path] = std::move(list);
  } else {
    (*into)[path.substr(0, dot)][path.substr(dot + 1)] = std::move(list);
  }
  return {};
}

}  // namespace

Status carry_variable(const std::string& text, std::map<std::string, std::string>* carried) {
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  std::string value;
  if (equals != std::string::npos) {
    value = text.substr(equals + 1);
  } else if (const char* own = std::getenv(name.c_str()); own != nullptr) {
    value = own;
  } else {
    return Error("--env " + name + ": you have no such variable; say --env " + name + "=VALUE");
  }
  if (auto fault = variable_fault(name, value)) return Error("--env " + *fault);
  (*carried)[name] = std::move(value);
  return {};
}

namespace {

std::map<std::string, std::string> own_environment() {
  std::map<std::string, std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos || equals == 0) continue;
    out.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

// Directories of the caller's PATH that are visible inside as they are: below /usr or /opt, and
// nobody but root can change them.
std::vector<std::string> system_path() {
  std::vector<std::string> out;
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const std::size_t colon = rest.find(':');
    const std::string entry(rest.substr(0, colon));
    rest = colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
    struct stat st {};
    const bool system = entry.starts_with("/usr/") || entry.starts_with("/opt/");
    if (!system || fs::path(entry).lexically_normal() != entry) continue;
    if (::stat(entry.c_str(), &st) != 0 || !S_ISDIR(st.st_mode)) continue;
    if (st.st_uid != 0 || (st.st_mode & 022U) != 0) continue;
    out.push_back(entry);
  }
  return out;
}

}  // namespace

// The id ranges of sandboxes that have not ended: another one must not get them.
Result<std::vector<std::uint32_t>> live_ranges(const SandboxStore& store) {
  std::vector<std::uint32_t> out;
  TRY_ASSIGN(const std::vector<SandboxRecord> records, store.list());
  for (const SandboxRecord& record : records) {
    const auto range = record.resources.find("id_range");
    if (record.ended_for_good() || range == record.resources.end()) continue;
    if (range->is_number_unsigned()) out.push_back(range->get<std::uint32_t>());
  }
  return out;
}

namespace {

Result<LoadedManifest> load(const RunOptions& options, const SandboxStore& store,
                            const fs::path& workspace, const Context& context) {
  TRY_ASSIGN(const ManifestPlaces places, manifest_places(state_directory(store)));
  fs::path asked(options.manifest);
  if (!asked.empty() && !is_template(asked)) asked = context.directory / asked;
  return load_manifest(places, asked, workspace);
}

Status check_name(const Manifest& manifest, const SandboxStore& store) {
  if (manifest.name.empty()) return {};
  TRY_ASSIGN(const std::vector<SandboxRecord> records, store.list());
  for (const SandboxRecord& record : records) {
    if (record.name == manifest.name && !record.ended_for_good()) {
      return Error("a sandbox named " + manifest.name + " is running (" + record.id + ")");
    }
  }
  return {};
}

// What git tracks; an index that cannot be read only costs a note.
std::vector<std::string> tracked_paths(const Workspace& workspace) {
  constexpr std::size_t kMaxIndex = 64U << 20U;
  auto index = os::read_regular_file(workspace.path / ".git" / "index", kMaxIndex);
  if (!index.ok()) return {};
  auto paths = parse_git_index(*index);
  return paths.ok() ? std::move(paths).value() : std::vector<std::string>();
}

// What presets and --env add is bounded like the manifest itself.
Status narrow_additions(const ManifestLimit& limit, PlanRequest* request) {
  Manifest& manifest = request->manifest;
  std::vector<PresetResult*> presets;
  for (PresetResult& preset : request->presets) presets.push_back(&preset);
  for (PresetResult& preset : request->phase_presets) presets.push_back(&preset);
  for (PresetResult* const one : presets) {
    PresetResult& preset = *one;
    Manifest probe;
    probe.engine = manifest.engine;
    probe.image = manifest.image;
    for (const std::string& rule : preset.rules) {
      probe.rules.push_back({rule, "preset:" + preset.name, {}});
    }
    TRY(narrow(&probe, limit));
    preset.rules.clear();
    for (const NetworkRule& rule : probe.rules) preset.rules.push_back(rule.text);
    manifest.narrowed.insert(manifest.narrowed.end(), probe.narrowed.begin(), probe.narrowed.end());
  }
  Manifest names;
  names.engine = manifest.engine;
  names.image = manifest.image;
  for (const auto& [name, value] : request->carried_env) names.env_allow.push_back(name);
  TRY(narrow(&names, limit));
  std::erase_if(request->carried_env, [&](const auto& entry) {
    const auto& kept = names.env_allow;
    if (std::find(kept.begin(), kept.end(), entry.first) != kept.end()) return false;
    manifest.narrowed.push_back(limit.source + ": --env " + entry.first + " is not permitted");
    return true;
  });
  return {};
}

}  // namespace

Status apply_options(const RunOptions& options, Manifest* manifest,
                     std::map<std::string, std::string>* carried) {
  Json keys = Json::object();
  TRY(put(&keys, "--mode", "mode", options.mode));
  TRY(put(&keys, "--engine", "engine", options.engine));
  TRY(put(&keys, "--image", "image", options.image));
  TRY(put(&keys, "--name", "name", options.name));
  TRY(put(&keys, "--timeout", "process.timeout", options.timeout));
  TRY(put(&keys, "--memory", "process.memory", options.memory));
  TRY(put(&keys, "--pids", "process.pids", options.pids));
  TRY(put(&keys, "--cpus", "process.cpus", options.cpus));
  TRY(put_list(&keys, "--allow", "network.rules", options.allow));
  TRY(put_list(&keys, "--preset", "presets", options.presets));
  TRY(put_list(&keys, "--hide", "workspace.hide", options.hide));
  TRY(put_list(&keys, "--readonly", "workspace.readonly", options.readonly));
  TRY(apply_manifest(manifest, keys, kSource));
  for (const std::string& text : options.env) TRY(carry_variable(text, carried));
  return {};
}

Result<PreparedRun> prepare_run(const Context& context, const RunOptions& options,
                                const SandboxStore& store) {
  PlanRequest request;
  TRY_ASSIGN(request.workspace, workspace_here(context, store, options.workspace));
  TRY_ASSIGN(LoadedManifest loaded, load(options, store, request.workspace.path, context));
  request.manifest = std::move(loaded.manifest);
  request.manifest_source = loaded.source;
  request.notes = std::move(loaded.notes);
  if (!request.manifest.workspace.empty() && options.workspace.empty()) {
    TRY_ASSIGN(request.workspace, workspace_here(context, store, request.manifest.workspace));
  }
  TRY(apply_options(options, &request.manifest, &request.carried_env));
  if (loaded.organisation) TRY(narrow(&request.manifest, *loaded.organisation));
  request.now = std::chrono::system_clock::now();
  TRY(check_name(request.manifest, store));
  TRY(settle_mounts(&request.manifest));
  TRY_ASSIGN(request.submounts, find_submounts(request.manifest));

  FactsQuery query;
  query.docker = request.manifest.engine == "docker";
  query.image = request.manifest.image;
  TRY_ASSIGN(const HostFacts facts, gather_host_facts(query));
  TRY_ASSIGN(request.sandbox_id, make_sandbox_id());
  TRY_ASSIGN(request.operation_id, make_sandbox_id());
  request.sandbox_directory = store.root() / request.sandbox_id;
  if (facts.uid == 0) {
    TRY_ASSIGN(const std::vector<std::uint32_t> live, live_ranges(store));
    TRY_ASSIGN(request.id_range, choose_id_range(facts, request.sandbox_id, live));
  }
  PresetQuery preset_query{request.workspace.path, state_directory(store), facts.home,
                           facts.user_name};
  for (const std::string& name : request.manifest.presets) {
    TRY_ASSIGN(PresetResult preset, discover_preset(name, preset_query));
    request.presets.push_back(std::move(preset));
  }
  for (const PhaseRule& phase : request.manifest.phases) {
    for (const std::string& name : phase.presets) {
      const bool known = std::any_of(request.phase_presets.begin(), request.phase_presets.end(),
                                     [&](const PresetResult& have) { return have.name == name; });
      if (known) continue;
      TRY_ASSIGN(PresetResult preset, discover_preset(name, preset_query));
      request.phase_presets.push_back(std::move(preset));
    }
  }
  if (loaded.organisation) TRY(narrow_additions(*loaded.organisation, &request));
  for (const std::string& taken : request.manifest.narrowed) request.notes.push_back(taken);
  SecretQuery wanted{{}, options.detach, request.workspace.path, {}};
  for (const ExtraMount& mount : request.manifest.mounts) wanted.shown.emplace_back(mount.source);
  if (!context.command.empty()) wanted.programs.push_back(context.command.front());
  for (const PhaseRule& phase : request.manifest.phases) {
    wanted.programs.push_back(phase.command.front());
  }
  TRY_ASSIGN(request.secrets, read_secrets(request.manifest.secrets, wanted));
  request.tracked = tracked_paths(request.workspace);
  std::error_code code;
  request.opt_exists = fs::is_directory(fs::symlink_status("/opt", code));
  request.host_env = own_environment();
  request.system_path = system_path();
  request.argv = context.command;
  request.interactive = options.interactive;
  request.terminal = options.terminal;
  request.keep = options.detach;

  PreparedRun run;
  TRY_ASSIGN(run.plan, make_plan(request, facts));
  run.manifest = effective_manifest(request);
  run.secret_env = request.carried_env;
  run.plan.trace = {
      {"sandbox.profile", run.manifest.mode},
      {"filesystem.write", run.manifest.mode == "read-only" ? "none" : "copy_on_write"},
      {"network.mode", run.manifest.network_mode},
      {"env.inherit", run.manifest.env_inherit}};
  const Manifest& m = run.manifest;
  for (const auto& [key, value] :
       {std::pair{"tenant", m.tenant}, std::pair{"task", m.task}, std::pair{"creator", m.creator},
        std::pair{"policy_version", m.policy_version}}) {
    if (!value.empty()) run.plan.trace[key] = value;
  }
  return run;
}

}  // namespace cofferdam::orchestrator::cli
