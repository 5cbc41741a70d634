#include <algorithm>
#include <memory>

#include "orchestrator/cli/commands.h"
#include "orchestrator/cli/surroundings.h"
#include "orchestrator/grants.h"

namespace cofferdam::orchestrator::cli {
namespace {

std::string command_text(const SandboxRecord& record) {
  std::string text;
  for (const std::string& word : record.argv) text += (text.empty() ? "" : " ") + word;
  constexpr std::size_t kShown = 60;
  return text.size() > kShown ? text.substr(0, kShown) + "…" : text;
}

// A record that says it runs although nobody holds its lock is an orphan.
Result<bool> is_orphan(const SandboxStore& store, const SandboxRecord& record) {
  if (record.ended_for_good()) return false;
  auto owned = store.try_own(record);
  if (!owned.ok()) return owned.error();
  return owned->has_value() && !(**owned).record.ended_for_good();
}

// What it may do for a time; a file that cannot be read is told as such.
Json active_grants(const SandboxRecord& record) {
  if (record.ended_for_good()) return Json::array();
  const auto grants = read_grants(record);
  if (!grants.ok()) return {{{"error", grants.error().message()}}};
  Json list = Json::array();
  for (Json& grant : grants_json(*grants, std::chrono::system_clock::now())) {
    if (grant["active"] == true) list.push_back(std::move(grant));
  }
  return list;
}

std::string grants_text(const SandboxRecord& record) {
  std::string text;
  for (const Json& grant : active_grants(record)) {
    text += "  [granted " + grant.value("rule", "?") + " until " +
            grant.value("expires", "?").substr(0, 19) + "]";
  }
  return text;
}

Json record_json(const SandboxRecord& record, bool orphan) {
  return {{"id", record.id},
          {"name", record.name},
          {"state", to_text(record.state)},
          {"orphan", orphan},
          {"engine", record.engine},
          {"workspace", record.workspace},
          {"manifest", record.manifest},
          {"created", record.created},
          {"ended", record.ended},
          {"exit_status", record.exit_status ? Json(*record.exit_status) : Json()},
          {"message", record.message},
          {"argv", record.argv},
          {"supervisor_pid", record.supervisor_pid},
          {"grants", active_grants(record)},
          {"directory", record.directory.string()}};
}

int ps(bool json) {
  const auto store = SandboxStore::open();
  if (!store.ok()) return fail(store.error());
  const auto records = store->list();
  if (!records.ok()) return fail(records.error());
  Json list = Json::array();
  if (!json)
    print_line(
        "ID                NAME              STATE       EXIT  CREATED              WORKSPACE  "
        "COMMAND");
  for (const SandboxRecord& record : *records) {
    const auto orphan = is_orphan(*store, record);
    const bool lost = orphan.ok() && *orphan;
    list.push_back(record_json(record, lost));
    if (json) continue;
    const auto pad = [](std::string text, std::size_t width) {
      if (text.size() < width) text.append(width - text.size(), ' ');
      return text + "  ";
    };
    print_line(pad(record.id, 16) + pad(record.name, 16) +
               pad(lost ? "orphan" : std::string(to_text(record.state)), 10) +
               pad(record.exit_status ? std::to_string(*record.exit_status) : "-", 4) +
               pad(record.created.substr(0, 19), 19) + record.workspace + "  " +
               command_text(record) + grants_text(record));
  }
  if (json) print_json({{"sandboxes", list}});
  return 0;
}

}  // namespace

void add_ps(CLI::App& app, Context& context) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("ps", "List sandboxes, the newest first");
  command->add_flag("--json", *json, "One JSON object");
  command->callback([&context, json] { context.action = [json] { return ps(*json); }; });
}

}  // namespace cofferdam::orchestrator::cli
