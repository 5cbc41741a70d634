#include <chrono>
#include <memory>

#include "common/base/text_time.h"
#include "common/os/files.h"
#include "orchestrator/cli/commands.h"
#include "orchestrator/cli/removal.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/manifest/quantity.h"
#include "orchestrator/reap.h"

namespace cofferdam::orchestrator::cli {
namespace {

struct Options {
  std::string older;
  bool force = false;
  bool json = false;
};

// By the time of its end; one whose time cannot be read is as old as its making, or not old.
bool is_old(const SandboxRecord& record, std::chrono::milliseconds age) {
  auto since = parse_rfc3339(record.ended);
  if (!since) since = parse_rfc3339(record.created);
  return since && std::chrono::system_clock::now() - *since >= age;
}

// Its manifest says how long it is to be there after its end (lifetime.keep).
bool is_to_be_kept(const SandboxRecord& record) {
  const auto text = os::read_file(record.directory / "manifest.json");
  if (!text.ok()) return false;
  const auto manifest = parse_json(*text);
  if (!manifest.ok() || !manifest->is_object()) return false;
  const Json keep = manifest->value("lifetime", Json::object()).value("keep_ms", Json());
  return keep.is_number_integer() &&
         !is_old(record, std::chrono::milliseconds(keep.get<std::int64_t>()));
}

int prune(const Options& options) {
  std::chrono::milliseconds age{0};
  if (!options.older.empty()) {
    const auto parsed = parse_duration(options.older);
    if (!parsed) return fail("--older " + options.older + ": must be a duration: 90s, 2h, 7d");
    age = *parsed;
  }
  const auto store = SandboxStore::open();
  if (!store.ok()) return fail(store.error());
  if (const auto reaped = reap_orphans(*store); !reaped.ok()) return fail(reaped.error());
  const auto records = store->list();
  if (!records.ok()) return fail(records.error());
  Json removed = Json::array();
  Json kept = Json::array();
  for (const SandboxRecord& record : *records) {
    if (!record.ended_for_good() || !is_old(record, age)) continue;
    if (!options.force && is_to_be_kept(record)) continue;
    auto owned = store->try_own(record);
    if (!owned.ok() || !*owned) continue;  // removed, or begun again, meanwhile
    const Status done = remove_ended(*store, std::move(**owned), options.force);
    if (done.ok()) {
      removed.push_back(record.id);
      if (!options.json) print_line("removed " + record.name + " (" + record.id + ")");
    } else {
      kept.push_back({{"id", record.id}, {"why", done.error().message()}});
      if (!options.json) print_line("kept " + done.error().message());
    }
  }
  if (options.json) {
    print_json({{"removed", removed}, {"kept", kept}});
  } else if (removed.empty() && kept.empty()) {
    print_line("Nothing to remove.");
  }
  return 0;
}

}  // namespace

void add_prune(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("prune", "Remove ended sandboxes; those with unmerged changes are kept");
  command->add_option("--older", options->older, "Only those that ended this long ago: 2h, 7d");
  command->add_flag("--force", options->force, "Also those with unmerged changes");
  command->add_flag("--json", options->json, "One JSON object");
  command->callback(
      [&context, options] { context.action = [options] { return prune(*options); }; });
}

}  // namespace cofferdam::orchestrator::cli
