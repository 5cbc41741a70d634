// BulkTree: a whole directory of ignored content that the workspace does not have, taken home as
// one object (a dependency folder: tens of thousands of files that nobody reviews one by one).
//
// Looked through by names, kinds and modes, and searched for secrets; anything in it that a merge
// would leave behind makes it no bulk tree, and its entries are then changes like all others.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/base/result.h"
#include "orchestrator/changes/changes.h"
#include "orchestrator/changes/risk.h"
#include "orchestrator/secrets/found_secrets.h"

namespace cofferdam::orchestrator::changes {

// Whether a path must not come home, by the sandbox's own rules.
using IsHidden = std::function<bool(const std::string& path, bool is_dir)>;

struct BulkTree {
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
  std::uint64_t holes = 0;  // of `bytes`, those that are stored nowhere
  Risk risk;                // the worst in it
  std::string risky_path;   // the first such
  std::uint64_t risky = 0;  // how many are that bad
  std::string secret;       // what secret the first file that holds one holds, in words
  std::string secret_path;
  std::uint64_t secrets = 0;  // how many files hold one
};

// What lies in the layer at and below `path`; nothing when it is no bulk tree.
Result<std::optional<BulkTree>> look_through(int upper, const std::string& path,
                                             const RiskTable& risks,
                                             const secrets::SecretScanner& scanner,
                                             const IsHidden& is_hidden);

struct TreeOwner {
  std::optional<uid_t> uid;  // absent: stays the caller's
  std::optional<gid_t> gid;
  std::uint32_t umask = 022;
};

// Told how many entries more there are now; by several threads at a time.
using Copied = std::function<void(std::uint64_t entries)>;

// Copies it to `name` in `to`: reflinks where the file system can, else bytes. Modes (without
// set-id bits and what the umask withholds) and modification times go along.
Status copy_tree(int upper, const std::string& path, int to, const std::string& name,
                 const TreeOwner& owner, const Copied& copied = {});

}  // namespace cofferdam::orchestrator::changes
