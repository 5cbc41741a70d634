#include "orchestrator/changes/settled.h"

#include <cerrno>

#include "common/os/files.h"
#include "common/os/object_copy.h"
#include "orchestrator/changes/change_json.h"

namespace cofferdam::orchestrator::changes {
namespace {

std::filesystem::path file_of(const SandboxRecord& sandbox) {
  return sandbox.directory / "merged.json";
}

}  // namespace

Result<Settled> Settled::load(const SandboxRecord& sandbox) {
  Settled settled;
  const auto text = os::read_file(file_of(sandbox), std::size_t{1} << 30U);
  if (!text.ok()) {
    if (text.error().error_number() == ENOENT) return settled;
    return text.error();
  }
  TRY_ASSIGN(const Json json, parse_json(*text).context("merged.json"));
  if (!json.is_object() || json.value("version", 0) != 1 || !json.contains("paths") ||
      !json["paths"].is_array()) {
    return Error("merged.json: not version 1");
  }
  for (const Json& row : json["paths"]) {
    TRY_ASSIGN(std::string path, path_from_json(row));
    TRY_ASSIGN(const ObjectState state, state_from_json(row.value("state", Json())));
    settled.paths[std::move(path)] = state;
  }
  return settled;
}

Status Settled::save(const SandboxRecord& sandbox) const {
  Json rows = Json::array();
  for (const auto& [path, state] : paths) {
    Json row = path_to_json(path);
    row["state"] = to_json(state);
    rows.push_back(std::move(row));
  }
  const Json json = {{"version", 1}, {"paths", std::move(rows)}};
  TRY(os::write_file_atomic(file_of(sandbox), canonical_json(json) + "\n"));
  return os::sync_directory(sandbox.directory);
}

Status settle(const SandboxRecord& sandbox, const std::vector<Settlement>& settled, Position at) {
  if (settled.empty()) return {};
  TRY_ASSIGN(Settled known, Settled::load(sandbox));
  for (const Settlement& settlement : settled) {
    if (at == Position::kAfter) {
      known.paths[settlement.path] = settlement.after;
    } else if (settlement.before.has_value()) {
      known.paths[settlement.path] = *settlement.before;
    } else {
      known.paths.erase(settlement.path);
    }
  }
  return known.save(sandbox);
}

}  // namespace cofferdam::orchestrator::changes
