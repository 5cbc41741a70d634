#include "orchestrator/changes/ignore_rules.h"

#include <git2.h>

#include <cstdlib>
#include <filesystem>

#include "orchestrator/changes/git_library.h"

namespace cofferdam::orchestrator::changes {

struct IgnoreRules::State {
  git_repository* repository = nullptr;
  // Read when the first path matches a rule: a large one takes longer than all the rest.
  git_index* index = nullptr;
  std::string failure;
  std::string prefix;  // of the workspace in the repository's work tree, "" or "a/b/"

  State() { use_git_library(); }
  ~State() {
    git_index_free(index);
    git_repository_free(repository);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  bool tracks(const std::string& path, bool directory);
};

namespace {

std::string failed(const char* what) {
  const git_error* error = git_error_last();
  return std::string("the repository's ignore rules: ") + what + ": " +
         (error != nullptr && error->message != nullptr ? error->message : "unknown");
}

}  // namespace

IgnoreRules::IgnoreRules(std::shared_ptr<State> state) : state_(std::move(state)) {}

bool IgnoreRules::State::tracks(const std::string& path, bool directory) {
  if (index == nullptr && failure.empty() && git_repository_index(&index, repository) != 0) {
    failure = failed("index");
  }
  if (index == nullptr) return true;
  if (!directory) return git_index_get_bypath(index, path.c_str(), 0) != nullptr;
  std::size_t at = 0;
  return git_index_find_prefix(&at, index, path.c_str()) == 0;
}

Status IgnoreRules::check() const {
  return state_->failure.empty() ? Status() : Status(Error(state_->failure));
}

Result<IgnoreRules> IgnoreRules::open(const std::string& workspace) {
  auto state = std::make_shared<State>();
  // Root may review a user's sandbox: nothing of the repository is run, so its owner does not
  // matter.
  git_libgit2_opts(GIT_OPT_SET_OWNER_VALIDATION, 0);
  const int code = git_repository_open_ext(&state->repository, workspace.c_str(), 0, nullptr);
  if (code == GIT_ENOTFOUND) return IgnoreRules(std::move(state));
  if (code != 0) return Error("the workspace's repository: " + why_not_opened());
  const char* work_tree = git_repository_workdir(state->repository);
  if (work_tree == nullptr) {
    git_repository_free(state->repository);
    state->repository = nullptr;
    return IgnoreRules(std::move(state));
  }
  std::error_code ec;
  const auto relative = std::filesystem::relative(workspace, work_tree, ec);
  if (ec) return Error("the repository's ignore rules: " + ec.message());
  if (relative != ".") state->prefix = relative.string() + "/";
  return IgnoreRules(std::move(state));
}

bool IgnoreRules::is_ignored(const std::string& path, bool directory) const {
  if (state_->repository == nullptr) return false;
  const std::string full = state_->prefix + path + (directory ? "/" : "");
  int ignored = 0;
  // A name that libgit2 cannot judge is not ignored: it is shown.
  if (git_ignore_path_is_ignored(&ignored, state_->repository, full.c_str()) != 0) return false;
  return ignored != 0 && !state_->tracks(full, directory);
}

}  // namespace cofferdam::orchestrator::changes
