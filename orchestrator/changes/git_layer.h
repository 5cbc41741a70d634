// GitLayer: what a sandbox wrote into its workspace's git directory, as files that nobody here
// parses: they are opened and handed to the reader.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/os/unique_fd.h"
#include "orchestrator/changes/home_repository.h"
#include "orchestrator/changes/upper_stack.h"
#include "orchestrator/reader/object_id.h"
#include "orchestrator/sandbox_store.h"

namespace cofferdam::orchestrator::changes {

class GitLayer final {
 public:
  // Nothing where the sandbox wrote nothing into the git directory.
  static Result<std::optional<GitLayer>> open(const SandboxRecord& sandbox,
                                              const HomeRepository& home);

  // The small files' first `limit` bytes; nothing where the sandbox did not write them.
  std::optional<std::string> head(std::size_t limit) const;
  // Every file below refs/heads/, by its name there.
  Status for_each_branch(
      std::size_t limit,
      const std::function<Status(const std::string& name, const std::string& bytes)>& visit) const;
  // Loose references that are no branches (tags, notes, the stash, remote branches): their whole
  // names, bytes, at most `limit` of them.
  Result<std::vector<std::string>> other_references(std::size_t limit) const;
  os::UniqueFd packed_refs() const;  // empty: not written
  struct PackFiles {
    os::UniqueFd index;
    os::UniqueFd pack;
  };
  Result<std::vector<PackFiles>> packs(std::size_t limit) const;
  os::UniqueFd loose_object(const reader::ObjectId& id) const;  // empty: there is none
  // Whether the history inside was cut (a shallow clone or fetch made there).
  bool is_shallow() const;

 private:
  GitLayer(UpperStack common, std::string own) : common_(std::move(common)), own_(std::move(own)) {}
  os::UniqueFd file(const std::string& path) const;

  UpperStack common_;  // the layer's image of the common git directory
  std::string own_;    // the worktree's own directory in it: "" or "worktrees/<name>/"
};

}  // namespace cofferdam::orchestrator::changes
