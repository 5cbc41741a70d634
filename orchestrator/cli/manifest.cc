#include <cstdio>
#include <memory>

#include "common/base/json_text.h"
#include "common/os/files.h"
#include "orchestrator/cli/commands.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/grants.h"
#include "orchestrator/manifest/embedded.h"
#include "orchestrator/manifest/sources.h"

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

int show(const Context& context, const std::string& argument) {
  std::error_code code;
  if (!argument.empty() && !is_template(argument) && !std::filesystem::exists(argument, code)) {
    // A sandbox: what it was started with.
    const auto record = find_sandbox(context, argument);
    if (!record.ok()) return fail(argument + ": no such file and no such sandbox");
    const auto text = os::read_file(record->directory / "manifest.json");
    if (!text.ok()) return fail(text.error());
    auto json = parse_json(*text);
    if (!json.ok()) return fail(json.error());
    const auto grants = read_grants(*record);
    if (!grants.ok()) return fail(grants.error());
    const Json list = grants_json(*grants, std::chrono::system_clock::now());
    if (!list.empty()) (*json)["grants"] = list;
    print_json(*json);
    return 0;
  }
  const auto loaded = load(context, argument);
  if (!loaded.ok()) return fail(loaded.error());
  for (const std::string& text : loaded->notes) note(text);
  print_json(manifest_json(loaded->manifest));
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
  struct Options {
    std::string file;
    bool effective = false;
  };
  auto options = std::make_shared<Options>();
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
  add(
      "show", "Print every right, as JSON",
      [&context, options] { return show(context, options->file); }, true)
      ->add_flag("--effective", options->effective, "With defaults filled in (always so)");
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
