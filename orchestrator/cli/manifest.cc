#include <algorithm>
#include <cstdio>
#include <memory>

#include "common/base/json_text.h"
#include "common/os/files.h"
#include "orchestrator/cli/commands.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/grants.h"
#include "orchestrator/manifest/embedded.h"
#include "orchestrator/manifest/rights.h"
#include "orchestrator/manifest/sources.h"
#include "orchestrator/modes.h"

namespace cofferdam::orchestrator::cli {
namespace {

// FILE, or what a run here would use.
Result<LoadedManifest> load(const Context& context, const std::string& file) {
  if (!file.empty()) {
    TRY_ASSIGN(Manifest manifest, load_manifest_file(file));
    return LoadedManifest{std::move(manifest), file, {}};
  }
  TRY_ASSIGN(const SandboxStore store, SandboxStore::open());
  TRY_ASSIGN(const ManifestPlaces places, manifest_places(state_directory(store)));
  const auto workspace = workspace_here(context, store, {});
  return load_manifest(places, {}, workspace.ok() ? workspace->path : std::filesystem::path());
}

int check(const Context& context, const std::string& file) {
  const auto loaded = load(context, file);
  if (!loaded.ok()) {
    (void)fail(loaded.error());
    return 1;
  }
  print_line(loaded->source + ": good, " + manifest_digest(loaded->manifest));
  return 0;
}

int digest(const Context& context, const std::string& file) {
  const auto loaded = load(context, file);
  if (!loaded.ok()) return fail(loaded.error());
  print_line(manifest_digest(loaded->manifest));
  return 0;
}

// A sandbox's manifest as it was started, and what came to it since.
Result<Json> stored_of(const SandboxRecord& record) {
  TRY_ASSIGN(const std::string text, os::read_file(record.directory / "manifest.json"));
  TRY_ASSIGN(Json json, parse_json(text));
  TRY_ASSIGN(const auto grants, read_grants(record));
  const Json list = grants_json(grants, std::chrono::system_clock::now());
  if (!list.empty()) json["grants"] = list;
  TRY_ASSIGN(const auto switches, read_mode_switches(record));
  if (!switches.empty()) json["mode_switches"] = mode_switches_json(switches);
  return json;
}

// With `origins`. FILE, a template, a sandbox, or what a run here would use, as far as the
// organisation permits it.
Result<Json> stored_json_of(const Context& context, const std::string& argument) {
  std::error_code code;
  if (!argument.empty() && !is_template(argument) && !std::filesystem::exists(argument, code)) {
    const auto record = find_sandbox(context, argument);
    if (!record.ok()) return Error(argument + ": no such file and no such sandbox");
    return stored_of(*record);
  }
  TRY_ASSIGN(LoadedManifest loaded, load(context, argument));
  if (loaded.organisation) TRY(narrow(&loaded.manifest, *loaded.organisation));
  for (const std::string& text : loaded.notes) note(text);
  for (const std::string& text : loaded.manifest.narrowed) note(text);
  return stored_manifest_json(loaded.manifest);
}

void print_rights(const Json& stored, bool json) {
  Json list = Json::array();
  std::size_t width = 0;
  const std::vector<Right> rights = rights_of(stored);
  for (const Right& right : rights) {
    width = std::max(width, std::min<std::size_t>(60, right.key.size() + right.value.size() + 1));
    list.push_back({{"key", right.key}, {"value", right.value}, {"from", right.from}});
  }
  if (json) {
    print_json({{"rights", list}});
    return;
  }
  for (const Right& right : rights) {
    std::string line = right.key + " " + right.value;
    if (line.size() < width) line.append(width - line.size(), ' ');
    print_line(line + "  " + right.from);
  }
}

struct ShowOptions {
  std::string file;
  std::string other;  // --diff
  bool effective = false;
  bool json = false;
};

int show(const Context& context, const ShowOptions& options) {
  auto stored = stored_json_of(context, options.file);
  if (!stored.ok()) return fail(stored.error());
  if (!options.other.empty()) {
    const auto other = stored_json_of(context, options.other);
    if (!other.ok()) return fail(other.error());
    const std::vector<std::string> lines = rights_difference(*stored, *other);
    if (options.json) print_json({{"difference", lines}});
    for (const std::string& line : options.json ? std::vector<std::string>() : lines) {
      print_line(line);
    }
    return 0;
  }
  if (options.effective) {
    print_rights(*stored, options.json);
    return 0;
  }
  stored->erase("origins");
  print_json(*stored);
  return 0;
}

int trust(const std::string& file) {
  const auto store = SandboxStore::open();
  if (!store.ok()) return fail(store.error());
  const auto places = manifest_places(state_directory(*store));
  if (!places.ok()) return fail(places.error());
  const auto trusted = trust_manifest(*places, file);
  if (!trusted.ok()) return fail(trusted.error());
  print_line("trusted: " + file + ", " + *trusted + "; a change of the file ends the trust");
  return 0;
}

}  // namespace

void add_manifest(CLI::App& app, Context& context) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App* command = app.add_subcommand("manifest", "Check, show and trust manifests");
  command->require_subcommand(1);
  const auto add = [&](const char* name, const char* description, auto act, bool takes_file) {
    CLI::App* sub = command->add_subcommand(name, description);
    if (takes_file)
      sub->add_option("FILE", options->file, "A manifest; default: what run would use");
    sub->callback([&context, act] { context.action = act; });
    return sub;
  };
  add(
      "check", "Say whether a manifest is good",
      [&context, options] { return check(context, options->file); }, true);
  add(
      "digest", "Print the digest of its rights",
      [&context, options] { return digest(context, options->file); }, true);
  CLI::App* shown = add(
      "show", "Print every right, as JSON", [&context, options] { return show(context, *options); },
      true);
  shown->add_flag("--effective", options->effective, "One line each, with where it came from");
  shown->add_option("--diff", options->other,
                    "What differs in this one: file, template or sandbox");
  shown->add_flag("--json", options->json, "--effective and --diff as one JSON object");
  add(
      "schema", "Print the JSON schema",
      [] {
        const std::string_view schema = embedded_manifest_schema();
        std::fwrite(schema.data(), 1, schema.size(), stdout);
        return 0;
      },
      false);
  add(
      "trust", "Approve the present content of a workspace's manifest",
      [options] { return trust(options->file); }, true)
      ->get_option("FILE")
      ->required();
  add_manifest_learn(*command, context);
}

}  // namespace cofferdam::orchestrator::cli
