// HomeRepository: the user's own repository, which takes commits that a sandbox made.
//
// libgit2 reads it; no program is run, no hook, no filter. What a sandbox wrote comes in only as
// objects that were verified, by packs that are written here. As root everything in it is written
// as the repository's owner. Single thread.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/os/acting_as.h"
#include "orchestrator/reader/object_id.h"

namespace cofferdam::orchestrator::changes {

struct HomeHead {
  std::string branch;                   // without refs/heads/; empty: detached
  std::optional<reader::ObjectId> tip;  // nothing: no commit yet
};

class HomeRepository final {
 public:
  // Nothing, with the reason in `why`, where the workspace is not the top of a repository that
  // could take commits.
  static Result<std::optional<HomeRepository>> open(const std::string& workspace, std::string& why);
  HomeRepository(HomeRepository&&) noexcept;
  HomeRepository& operator=(HomeRepository&&) noexcept;
  ~HomeRepository();

  std::filesystem::path git_directory() const;     // of this worktree
  std::filesystem::path common_directory() const;  // the same but for a linked worktree
  Result<HomeHead> head() const;
  bool has(const reader::ObjectId& id) const;
  // Whether the commit `tip`, which is here, is `ancestor` or descends from it.
  Result<bool> descends(const reader::ObjectId& tip, const reader::ObjectId& ancestor) const;
  // Commits between the two, which are here.
  Result<std::size_t> count_between(const reader::ObjectId& tip,
                                    const reader::ObjectId& ancestor) const;
  // The commits that `tips` lead to, which are here, and that neither HEAD nor any branch or tag of
  // the user's leads to.
  Result<std::vector<reader::ObjectId>> commits_of_nobody(
      const std::vector<reader::ObjectId>& tips) const;
  // The content of an object that is here.
  Result<std::string> read(reader::ObjectType type, const reader::ObjectId& id) const;
  // The SHA-1 of an object by libgit2, which finds out attacks on SHA-1 (an error).
  static Result<reader::ObjectId> safe_id_of(reader::ObjectType type, std::string_view content);

  std::optional<reader::ObjectId> reference(const std::string& name) const;
  // Sets a reference; from `before` where that is given, else whatever it was. Refused where git
  // would not make such a name. The lock of a run that was killed in the middle of the same goes.
  Status set_reference(const std::string& name, const reader::ObjectId& id,
                       const std::optional<reader::ObjectId>& before, const std::string& log) const;
  // The commits of other repositories that the index holds.
  Result<std::set<reader::ObjectId>> submodules() const;
  // "a merge", "a rebase" … that the user has begun; empty: none.
  std::string operation_under_way() const;

  Result<os::ActingAs> act_as_owner() const;
  // After objects came in.
  void refresh() const;

 private:
  struct State;
  explicit HomeRepository(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace cofferdam::orchestrator::changes
