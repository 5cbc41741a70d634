// Merge: takes a sandbox's changes home, all or nothing.
//
// DESIGN section 5: base, theirs and ours are compared per path; any conflict or refusal means that
// nothing is written. Applying exchanges and verifies: what comes out of the workspace must be what
// was judged, else everything done so far is undone in reverse.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/changes/changes.h"

namespace cofferdam::orchestrator::changes {

enum class Side : std::uint8_t { kOurs, kTheirs };

struct MergeOptions {
  bool dry_run = false;
  bool strict_reads = false;             // stale reads are conflicts
  std::map<std::string, Side> take;      // path (or a directory above) -> whose version
  std::vector<std::string> allow_risky;  // paths or directories
  std::vector<std::string> paths;        // only these and what lies below; empty: everything
  // Called before each act on the workspace's file system ("create", "exchange", "sync", …) with
  // the path that it is about; an error makes that act fail. For tests.
  std::function<Status(std::string_view act, std::string_view path)> before_act;
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
  std::string why;  // of a conflict or refusal: what each side did, and the remedy
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
  bool written = false;  // the workspace was changed, and holds what was to be taken
  // Applying failed: what happened, and whether all of it was undone.
  std::string failure;
  bool undone = true;
  std::string kept_aside;  // a directory in the workspace with what could not be put back
  std::string warning;     // merged, but something of ours is left to clean up

  std::size_t count(Outcome outcome) const;
  bool has_conflicts() const;
  // 0 merged or nothing to do, 1 conflicts or refusals, 125 failed.
  int exit_status() const;
};

// Errors are failures before anything was written.
Result<MergeReport> merge_sandbox(const SandboxRecord& sandbox, const MergeOptions& options);

// The report for people; everything from the sandbox escaped.
std::string describe(const MergeReport& report, bool dry_run);

}  // namespace cofferdam::orchestrator::changes
