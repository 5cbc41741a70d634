// Changes: what a sandbox made of its workspace, and the way home for it.
//
// The write set is the upper layer, the read set is what fsproxy recorded in `meta`. Everything in
// the layer was written by a workload: names are bytes, no link is followed, nothing is parsed with
// the caller's rights but bytes. Single thread. The caller holds the sandbox's lock where a running
// workload would matter (merge).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/base/sha256.h"
#include "common/layer/meta_store.h"
#include "orchestrator/sandbox_store.h"

namespace cofferdam::orchestrator::changes {

// One object as it was, is, or is to be. Owners are no part of it.
struct ObjectState {
  layer::Kind kind = layer::Kind::kAbsent;
  std::uint32_t mode = 0;              // permission bits, 07777; 0 for links
  std::uint64_t size = 0;              // bytes; of a link's text for links; 0 for directories
  std::optional<Sha256Digest> sha256;  // of a file's content or a link's text

  bool absent() const { return kind == layer::Kind::kAbsent; }
  // Equal kind, mode and content; unknown content equals nothing.
  bool same_as(const ObjectState& other) const;
};

enum class ChangeKind : std::uint8_t {
  kAdded,
  kModified,  // a file's content, perhaps its mode too
  kDeleted,
  kMode,     // nothing but permission bits
  kType,     // a file became a directory, a link a file, …
  kSymlink,  // a link's text
};
std::string_view to_text(ChangeKind kind);
// A, M, D, M, T, M: git's letters.
char status_letter(ChangeKind kind);

enum class RiskLevel : std::uint8_t { kNone, kListed, kNeedsAllowance };

struct Risk {
  RiskLevel level = RiskLevel::kNone;
  std::string rule;    // id of the row in policies/risk.json, or of a built-in rule
  std::string reason;  // for people
};

struct Change {
  std::string path;  // relative to the workspace, bytes
  ChangeKind kind = ChangeKind::kModified;
  ObjectState base;
  bool base_known = true;  // false: whatever is there now is a conflict
  ObjectState theirs;      // set-id bits that the base did not have are already gone
  bool dropped_set_id = false;
  Risk risk;
  std::string secret;  // what secret it brings along, in words: "a GitHub token"; empty: none seen
  // Above 0: a whole directory of ignored content as one change, with so many objects.
  std::uint64_t bulk_entries = 0;
  std::uint64_t bulk_bytes = 0;
};

// What is never exported nor merged, with its reason; a directory stands for all below it.
struct Omission {
  std::string path;
  // git_directory | reserved | hidden | special_file | mostly_holes | unreadable | path_too_long |
  // xattr
  std::string reason;
  std::string detail;  // for people
  std::uint64_t entries = 1;
};

// A path that the user's own ignore rules cover; a directory stands for all below it.
struct Ignored {
  std::string path;
  std::uint64_t entries = 1;
  std::uint64_t bytes = 0;
};

// The other half of an added path that is a deleted one moved.
struct Rename {
  std::size_t from = 0;     // index of the deletion
  unsigned similarity = 0;  // percent
};

struct ChangeSet {
  std::vector<Change> changes;  // by path bytes
  // Index of an addition -> its rename; only find_renames() fills it.
  std::map<std::size_t, Rename> renames;
  std::vector<Omission> omissions;
  std::vector<Ignored> ignored;
  // Changes that an earlier merge took home (or left, by --take ours); no part of `changes`.
  std::uint64_t settled = 0;

  std::uint64_t ignored_entries() const;
  // Indices of the deletions that are the first half of a rename.
  std::map<std::size_t, std::size_t> renamed_away() const;
  // Indices of `changes`, risky ones first, then by path.
  std::vector<std::size_t> by_risk() const;
};

// Time and memory are proportional to what changed. More than kMaxChanges is an error.
inline constexpr std::size_t kMaxChanges = 1'000'000;
Result<ChangeSet> compute_changes(const SandboxRecord& sandbox);

// Changes that the workspace does not hold yet: what `rm` would throw away.
Result<std::size_t> count_unmerged_changes(const SandboxRecord& sandbox);

// Whether `path` is one of `selectors` or lies below one; no selector selects everything.
bool is_selected(std::string_view path, const std::vector<std::string>& selectors);
// A user's PATH argument (absolute, or relative to `directory`) as a path relative to `workspace`,
// without touching the file system.
Result<std::string> selector_from_argument(std::string_view argument, std::string_view directory,
                                           std::string_view workspace);

// {"path": …, "path_hex": … when it is not valid UTF-8, "change", "base", "theirs", "risk"}
Json to_json(const Change& change);
Json to_json(const ChangeSet& set);

}  // namespace cofferdam::orchestrator::changes
