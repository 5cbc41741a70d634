// Commits that a sandbox made, brought home: objects into the user's repository, under
// refs/cofferdam/<sandbox>/<branch>; and whether the user's branch can be fast-forwarded to them.
//
// Parsed by cofferdam-reader, verified here again. The user's own references, index and files are
// not touched here: that is the merge's affair (branch_move.h).
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/changes/branch_move.h"
#include "orchestrator/changes/changes.h"
#include "orchestrator/changes/session.h"

namespace cofferdam::orchestrator::changes {

struct HomeBranch {
  std::string name;       // inside; "HEAD" for a detached one
  std::string reference;  // where it comes home
  reader::ObjectId tip;
  std::size_t commits = 0;  // that were not here; counted up to 10'000
  // Its objects are here, and no reference of the user's leads to them: git would throw them away.
  bool unheld = false;
  std::string refused;  // why it does not come home
};

struct CommitReport {
  std::string nothing;  // why there is nothing to bring at all; empty otherwise
  std::vector<HomeBranch> branches;
  std::optional<BranchMove> move;  // the fast-forward, where there is one to make
  std::size_t ahead = 0;           // commits that it brings to the branch
  std::string refused;             // why there can be none: with the remedy
  // References made inside that stay there: tags, notes, the stash; loose ones, the first 1000.
  std::vector<std::string> left;
  // Paths of the fast-forward that the user should look at, risky ones first.
  std::vector<Change> risky;

  bool has_new() const;
};

struct CommitOptions {
  std::filesystem::path reader;  // the program
  bool dry_run = false;
  std::vector<std::string> allow_risky;
};

// Reads, verifies, and, unless it is a dry run, writes objects and references. Errors are failures:
// no reference was made.
Result<CommitReport> bring_commits_home(const SandboxRecord& sandbox, const ReviewSession& session,
                                        Placement& placement, const CommitOptions& options);

// Text for people, without the verdict; everything from the sandbox escaped.
std::string describe(const CommitReport& report, bool dry_run);
Json to_json(const CommitReport& report);

}  // namespace cofferdam::orchestrator::changes
