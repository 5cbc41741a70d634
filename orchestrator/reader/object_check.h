// Commits and trees, as strictly as `git fsck --strict` reads them, and stricter where a name would
// be dangerous once it is checked out. Pure, linear, without recursion; for the caged reader and,
// once more, for what takes objects over from it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/reader/object_id.h"

namespace cofferdam::orchestrator::reader {

struct CommitLinks {
  ObjectId tree;
  std::vector<ObjectId> parents;
};
// An error says what is wrong with it (fsck.c, fsck_commit): header lines in order, one author and
// one committer with date and zone, no NUL.
Result<CommitLinks> check_commit(std::string_view content);

enum class EntryKind : std::uint8_t { kFile, kExecutable, kSymlink, kTree, kSubmodule };
struct TreeEntry {
  std::string_view name;       // in the content
  std::string_view mode_text;  // likewise
  EntryKind kind = EntryKind::kFile;
  ObjectId id;
};
// The entries of a tree whatever their names and order: of one that is the user's already.
Result<std::vector<TreeEntry>> parse_tree(std::string_view content);
// Canonical modes, git's order, no name twice; no name that is empty, ".", "..", holds a slash, is
// longer than 255 bytes or is taken for ".git" anywhere (forbidden_names.h); no ".gitmodules" that
// is a link; no tree that git would take for a repository. Submodules are for the caller to judge.
Result<std::vector<TreeEntry>> check_tree(std::string_view content);

std::uint32_t mode_of(EntryKind kind);  // as in a tree

}  // namespace cofferdam::orchestrator::reader
