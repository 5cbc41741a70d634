// Merge: takes a sandbox's changes home, all or nothing.
//
// DESIGN section 5: base, theirs and ours are compared per path; any conflict or refusal means that
// nothing is written. What is taken goes through a transaction with a journal: after a kill the
// workspace is brought to one of its ends, and undo takes it back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/changes/changes.h"
#include "orchestrator/changes/commits.h"
#include "orchestrator/changes/transaction.h"

namespace cofferdam::orchestrator::changes {

enum class Side : std::uint8_t {
  kOurs,
  kTheirs,
  kMarkers,  // text with both sides where they overlap
};

struct MergeOptions {
  bool dry_run = false;
  bool strict_reads = false;             // stale reads are conflicts
  bool ignored = false;                  // ignored content too, within `paths`
  std::map<std::string, Side> take;      // path (or a directory above) -> whose version
  std::vector<std::string> allow_risky;  // paths or directories
  std::vector<std::string> paths;        // only these and what lies below; empty: everything
  // Commits too, with the program that reads them; not together with `paths`.
  std::optional<std::filesystem::path> commits;
  // How many of the entries that are taken are ready; by several threads at a time.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
  BeforeAct before_act = {};          // for tests
  bool objects_in_workspace = false;  // for tests
};

enum class Outcome : std::uint8_t {
  kTaken,        // written (dry run: would be)
  kSame,         // the workspace holds it already
  kKeptOurs,     // --take ours
  kNotSelected,  // outside PATH…
  kConflict,
  kRefused,  // would be dangerous: planted bare repository, risky without --allow-risky
};
std::string_view to_text(Outcome outcome);

struct MergeItem {
  Change change;
  ObjectState ours;
  Outcome outcome = Outcome::kTaken;
  // What each side did; of a conflict or refusal the remedy too.
  std::string why;
  ObjectState result;    // what is written where it is taken
  bool merged = false;   // result is the three-way merge of text, not theirs
  bool markers = false;  // with markers in it
};

struct StaleRead {
  std::string path;
  std::string why;
};

struct MergeReport {
  std::vector<MergeItem> items;  // one per change, by path
  std::vector<StaleRead> stale_reads;
  std::vector<Omission> omissions;
  std::vector<Ignored> ignored;
  std::uint64_t settled = 0;
  bool strict_reads = false;
  std::optional<CommitReport> commits;
  bool written = false;  // the workspace was changed, and holds what was to be taken
  // Writing failed: why; everything was taken back but `stuck`.
  std::string failure;
  std::vector<StuckStep> stuck;  // changed by somebody in that very moment: left as they are
  std::filesystem::path kept;    // where what belongs there lies
  std::string warning;

  std::size_t count(Outcome outcome) const;
  bool has_conflicts() const;
  // 0 merged or nothing to do, 1 conflicts or refusals, 125 failed.
  int exit_status() const;
};

// Errors are failures before anything was written. The caller holds the sandbox's lock.
Result<MergeReport> merge_sandbox(const SandboxRecord& sandbox, const MergeOptions& options);

// The report for people; everything from the sandbox escaped.
std::string describe(const MergeReport& report, bool dry_run);

// The same for programs: one row per change with its outcome, and everything that was left out.
Json to_json(const MergeReport& report, bool dry_run);

}  // namespace cofferdam::orchestrator::changes
