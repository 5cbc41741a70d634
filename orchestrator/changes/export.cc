#include "orchestrator/changes/export.h"

#include <set>

#include "common/os/tree_paths.h"
#include "orchestrator/changes/change_json.h"
#include "orchestrator/changes/patch.h"
#include "orchestrator/changes/renames.h"
#include "orchestrator/changes/session.h"

namespace cofferdam::orchestrator::changes {
namespace {

std::string_view to_text(PatchResult::Written written) {
  switch (written) {
    case PatchResult::Written::kWhole:
      return "whole";
    case PatchResult::Written::kPartly:
      return "partly";
    case PatchResult::Written::kImplied:
      return "implied";
    case PatchResult::Written::kNone:
      return "none";
  }
  return "none";
}

bool is_blob(const ObjectState& state) {
  return state.kind == layer::Kind::kFile || state.kind == layer::Kind::kSymlink;
}

using Paths = std::set<std::string, std::less<>>;

void add_parents(Paths& directories, std::string_view path) {
  for (auto parent = os::parent_of(path); !parent.empty(); parent = os::parent_of(parent)) {
    if (!directories.emplace(parent).second) return;
  }
}

}  // namespace

Result<ExportReport> export_patch(const SandboxRecord& sandbox, const Sink& out) {
  TRY_ASSIGN(const ReviewSession session, ReviewSession::open(sandbox));
  TRY_ASSIGN(ChangeSet set, session.collect());
  TRY(find_renames(session.view, set));
  const auto away = set.renamed_away();
  // Directories that come and go with the files below them, which is all that git knows of them.
  Paths filled;
  Paths emptied;
  for (const Change& change : set.changes) {
    if (is_blob(change.theirs)) add_parents(filled, change.path);
    if (is_blob(change.base) && !is_blob(change.theirs)) add_parents(emptied, change.path);
  }

  ExportReport report;
  Sha256 hash;
  const Sink counted = [&](std::string_view bytes) -> Status {
    report.patch_bytes += bytes.size();
    hash.update(bytes);
    return out(bytes);
  };
  Json rows = Json::array();
  for (std::size_t i = 0; i < set.changes.size(); ++i) {
    const Change& change = set.changes[i];
    const auto rename = set.renames.find(i);
    // The first half of a rename is in the section of the second.
    auto written = away.contains(i) ? Result<PatchResult>(PatchResult{})
                   : rename != set.renames.end()
                       ? write_rename(session.view, set.changes[rename->second.from], change,
                                      rename->second.similarity, PatchStyle{}, counted)
                       : write_patch(session.view, change, PatchStyle{}, counted);
    TRY_ASSIGN(PatchResult result, std::move(written).context(change.path));
    if (result.written == PatchResult::Written::kImplied) {
      const Paths& with_files = change.theirs.absent() ? emptied : filled;
      if (with_files.contains(change.path)) {
        result.note.clear();
      } else {
        result.written = PatchResult::Written::kNone;
        result.note = "a patch holds no empty directories";
      }
    }
    if (result.written != PatchResult::Written::kNone) ++report.exported;
    if (!result.note.empty()) {
      report.not_in_patch.push_back({change.path, "not_in_patch", result.note, 1});
    }
    if (!change.secret.empty()) report.secrets.emplace_back(change.path, change.secret);
    Json row = row_of(set, away, i);
    row["in_patch"] = to_text(result.written);
    if (!result.note.empty()) row["note"] = result.note;
    rows.push_back(std::move(row));
  }

  Json all = left_out_json(set);
  all["version"] = 1;
  all["sandbox"] = sandbox.id;
  all["name"] = sandbox.name;
  all["changes"] = std::move(rows);
  all["patch"] = {{"bytes", report.patch_bytes}, {"sha256", to_hex(hash.finish())}};
  report.manifest = std::move(all);
  report.omissions = std::move(set.omissions);
  report.ignored = std::move(set.ignored);
  return report;
}

}  // namespace cofferdam::orchestrator::changes
