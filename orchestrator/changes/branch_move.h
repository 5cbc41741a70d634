// BranchMove: the user's branch and index brought from one commit to another, or back.
//
// Under git's own lock of the index. Of the index only the entries that differ between the two
// commits are touched, and only where they are what one of the two commits says; so a move can be
// repeated after a kill, and taken back.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "orchestrator/changes/home_repository.h"
#include "orchestrator/changes/transaction.h"
#include "orchestrator/changes/tree_difference.h"

namespace cofferdam::orchestrator::changes {

struct BranchMove {
  std::string branch;  // without refs/heads/; what HEAD is
  reader::ObjectId before;
  reader::ObjectId after;
  std::vector<TreeDifference> paths;
};

// Why the index does not let this be done: what the user has staged, entry by entry; empty where
// it does.
Result<std::vector<StuckStep>> staged_otherwise(const HomeRepository& home, const BranchMove& move,
                                                Position at);
// Paths that are in the index.
Result<std::vector<bool>> are_tracked(const HomeRepository& home,
                                      const std::vector<TreeDifference>& paths);

// Brings branch and index there. Where they are there already nothing is done; an error means that
// both are as they were.
Status move_branch(const std::string& workspace, const BranchMove& move, Position to);
// What keeps the branch from being taken from `at` elsewhere: it was moved, or staged over.
Result<std::vector<StuckStep>> branch_changed_since(const std::string& workspace,
                                                    const BranchMove& move, Position at);

Json to_json(const BranchMove& move);
Result<BranchMove> branch_move_from_json(const Json& json);

}  // namespace cofferdam::orchestrator::changes
