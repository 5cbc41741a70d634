#include "orchestrator/changes/home_repository.h"

#include <git2.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/os/files.h"
#include "orchestrator/changes/git_library.h"

namespace cofferdam::orchestrator::changes {
namespace {

namespace fs = std::filesystem;

Error git_failure(const std::string& what) {
  const git_error* error = git_error_last();
  return Error(what + ": " +
               (error != nullptr && error->message != nullptr ? error->message : "unknown"));
}

git_oid oid_of(const reader::ObjectId& id) {
  git_oid oid{};
  git_oid_fromraw(&oid, id.bytes.data());
  return oid;
}

reader::ObjectId id_of_oid(const git_oid& oid) {
  reader::ObjectId id;
  std::copy(std::begin(oid.id), std::end(oid.id), id.bytes.begin());
  return id;
}

git_object_t type_of(reader::ObjectType type) {
  return static_cast<git_object_t>(type);
}

using Reference = std::unique_ptr<git_reference, void (*)(git_reference*)>;
using Walk = std::unique_ptr<git_revwalk, void (*)(git_revwalk*)>;

// A lock of a reference that nobody works under any more: it says what `id` is, or nothing, which
// is what one is like for the moment between its making and its writing, for a whole second. Where
// it is somebody's all the same, their rename fails, or gives the reference the value that it gets
// here.
bool remove_stale_lock(const fs::path& lock, const reader::ObjectId& id) {
  struct stat first {};
  struct stat then {};
  if (::lstat(lock.c_str(), &first) != 0 || !S_ISREG(first.st_mode)) return false;
  ::usleep(1'000'000);
  if (::lstat(lock.c_str(), &then) != 0) return true;  // it has gone by itself
  if (first.st_ino != then.st_ino || first.st_dev != then.st_dev || first.st_size != then.st_size) {
    return false;
  }
  const auto bytes = os::read_file(lock, 1024);
  if (!bytes.ok() || (!bytes->empty() && *bytes != reader::to_hex(id) + "\n")) return false;
  return ::unlink(lock.c_str()) == 0;
}

// git ends directories with a slash.
fs::path trimmed(const char* path) {
  std::string text(path);
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

}  // namespace

struct HomeRepository::State {
  git_repository* repository = nullptr;
  git_odb* odb = nullptr;
  uid_t uid = 0;
  gid_t gid = 0;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    git_odb_free(odb);
    git_repository_free(repository);
  }
};

HomeRepository::HomeRepository(std::unique_ptr<State> state) : state_(std::move(state)) {}
HomeRepository::HomeRepository(HomeRepository&&) noexcept = default;
HomeRepository& HomeRepository::operator=(HomeRepository&&) noexcept = default;
HomeRepository::~HomeRepository() = default;

Result<std::optional<HomeRepository>> HomeRepository::open(const std::string& workspace,
                                                           std::string& why) {
  use_git_library();
  git_libgit2_opts(GIT_OPT_SET_OWNER_VALIDATION, 0);  // see IgnoreRules::open
  git_libgit2_opts(GIT_OPT_ENABLE_FSYNC_GITDIR, 1);
  auto state = std::make_unique<State>();
  const int code = git_repository_open_ext(&state->repository, workspace.c_str(),
                                           GIT_REPOSITORY_OPEN_NO_SEARCH, nullptr);
  if (code == GIT_ENOTFOUND) {
    why = "the workspace is not the top of a git repository";
    return std::optional<HomeRepository>();
  }
  if (code != 0) return Error("the workspace's repository: " + why_not_opened());
  if (git_repository_is_bare(state->repository) != 0) {
    why = "the workspace is a bare git repository";
    return std::optional<HomeRepository>();
  }
  if (git_repository_odb(&state->odb, state->repository) != 0) {
    return git_failure("the workspace's repository");
  }
  struct stat st {};
  if (::stat(git_repository_commondir(state->repository), &st) != 0) {
    return Error::from_errno("the workspace's git directory");
  }
  state->uid = st.st_uid;
  state->gid = st.st_gid;
  return std::optional<HomeRepository>(HomeRepository(std::move(state)));
}

fs::path HomeRepository::git_directory() const {
  return trimmed(git_repository_path(state_->repository));
}

fs::path HomeRepository::common_directory() const {
  return trimmed(git_repository_commondir(state_->repository));
}

Result<HomeHead> HomeRepository::head() const {
  git_reference* raw = nullptr;
  if (git_reference_lookup(&raw, state_->repository, "HEAD") != 0) return git_failure("HEAD");
  const Reference head(raw, git_reference_free);
  HomeHead result;
  if (git_reference_type(head.get()) == GIT_REFERENCE_DIRECT) {
    result.tip = id_of_oid(*git_reference_target(head.get()));
    return result;
  }
  const std::string target = git_reference_symbolic_target(head.get());
  constexpr std::string_view kHeads = "refs/heads/";
  if (target.starts_with(kHeads)) result.branch = target.substr(kHeads.size());
  result.tip = reference(target);
  return result;
}

bool HomeRepository::has(const reader::ObjectId& id) const {
  const git_oid oid = oid_of(id);
  // What is not here now does not come while this runs; packs are not looked for anew each time.
  return git_odb_exists_ext(state_->odb, &oid, GIT_ODB_LOOKUP_NO_REFRESH) == 1;
}

Result<bool> HomeRepository::descends(const reader::ObjectId& tip,
                                      const reader::ObjectId& ancestor) const {
  if (tip == ancestor) return true;
  const git_oid below = oid_of(tip);
  const git_oid above = oid_of(ancestor);
  const int code = git_graph_descendant_of(state_->repository, &below, &above);
  if (code < 0) return git_failure("the history of " + reader::to_hex(tip));
  return code == 1;
}

Result<std::size_t> HomeRepository::count_between(const reader::ObjectId& tip,
                                                  const reader::ObjectId& ancestor) const {
  const git_oid below = oid_of(tip);
  const git_oid above = oid_of(ancestor);
  std::size_t ahead = 0;
  std::size_t behind = 0;
  if (git_graph_ahead_behind(&ahead, &behind, state_->repository, &below, &above) != 0) {
    return git_failure("the history of " + reader::to_hex(tip));
  }
  return ahead;
}

Result<std::vector<reader::ObjectId>> HomeRepository::commits_of_nobody(
    const std::vector<reader::ObjectId>& tips) const {
  std::vector<reader::ObjectId> found;
  TRY_ASSIGN(const HomeHead own, head());
  git_revwalk* raw = nullptr;
  if (git_revwalk_new(&raw, state_->repository) != 0) return git_failure("the history");
  const Walk walk(raw, git_revwalk_free);
  bool any = false;
  for (const reader::ObjectId& tip : tips) {
    if (tip == own.tip) continue;
    const git_oid oid = oid_of(tip);
    if (git_revwalk_push(raw, &oid) != 0) return git_failure(reader::to_hex(tip));
    any = true;
  }
  if (!any) return found;
  for (const char* mine : {"refs/heads", "refs/remotes", "refs/tags"}) {
    if (git_revwalk_hide_glob(raw, mine) != 0) return git_failure(mine);
  }
  if (own.tip) {
    const git_oid oid = oid_of(*own.tip);
    if (git_revwalk_hide(raw, &oid) != 0) return git_failure("HEAD");
  }
  git_oid next{};
  int code = 0;
  while ((code = git_revwalk_next(&next, raw)) == 0) found.push_back(id_of_oid(next));
  if (code != GIT_ITEROVER) return git_failure("the history");
  return found;
}

Result<std::string> HomeRepository::read(reader::ObjectType type,
                                         const reader::ObjectId& id) const {
  const git_oid oid = oid_of(id);
  git_odb_object* raw = nullptr;
  if (git_odb_read(&raw, state_->odb, &oid) != 0) return git_failure(reader::to_hex(id));
  const std::unique_ptr<git_odb_object, void (*)(git_odb_object*)> object(raw, git_odb_object_free);
  if (git_odb_object_type(object.get()) != type_of(type)) {
    return Error(reader::to_hex(id) + " is no " + std::string(reader::to_text(type)));
  }
  return std::string(static_cast<const char*>(git_odb_object_data(object.get())),
                     git_odb_object_size(object.get()));
}

Result<reader::ObjectId> HomeRepository::safe_id_of(reader::ObjectType type,
                                                    std::string_view content) {
  git_oid oid{};
  if (git_odb_hash(&oid, content.data(), content.size(), type_of(type)) != 0) {
    return git_failure("hash");
  }
  return id_of_oid(oid);
}

std::optional<reader::ObjectId> HomeRepository::reference(const std::string& name) const {
  git_oid oid{};
  if (git_reference_name_to_id(&oid, state_->repository, name.c_str()) != 0) return std::nullopt;
  return id_of_oid(oid);
}

Status HomeRepository::set_reference(const std::string& name, const reader::ObjectId& id,
                                     const std::optional<reader::ObjectId>& before,
                                     const std::string& log) const {
  TRY_ASSIGN(const auto owner, act_as_owner());
  const git_oid oid = oid_of(id);
  const git_oid expected = before ? oid_of(*before) : git_oid{};
  const auto attempt = [&] {
    git_reference* raw = nullptr;
    const int code = git_reference_create_matching(&raw, state_->repository, name.c_str(), &oid, 1,
                                                   before ? &expected : nullptr, log.c_str());
    git_reference_free(raw);
    return code;
  };
  int code = attempt();
  if (code == GIT_ELOCKED && remove_stale_lock(common_directory() / (name + ".lock"), id)) {
    code = attempt();
  }
  if (code == GIT_EMODIFIED) return Error(name + " was moved meanwhile");
  if (code != 0) return git_failure(name);
  return {};
}

Result<std::set<reader::ObjectId>> HomeRepository::submodules() const {
  git_index* raw = nullptr;
  if (git_repository_index(&raw, state_->repository) != 0) return git_failure("the index");
  const std::unique_ptr<git_index, void (*)(git_index*)> index(raw, git_index_free);
  std::set<reader::ObjectId> found;
  for (std::size_t i = 0; i < git_index_entrycount(raw); ++i) {
    const git_index_entry* entry = git_index_get_byindex(raw, i);
    if (entry->mode == GIT_FILEMODE_COMMIT) found.insert(id_of_oid(entry->id));
  }
  return found;
}

std::string HomeRepository::operation_under_way() const {
  switch (git_repository_state(state_->repository)) {
    case GIT_REPOSITORY_STATE_NONE:
      return {};
    case GIT_REPOSITORY_STATE_MERGE:
      return "a merge";
    case GIT_REPOSITORY_STATE_REVERT:
    case GIT_REPOSITORY_STATE_REVERT_SEQUENCE:
      return "a revert";
    case GIT_REPOSITORY_STATE_CHERRYPICK:
    case GIT_REPOSITORY_STATE_CHERRYPICK_SEQUENCE:
      return "a cherry-pick";
    case GIT_REPOSITORY_STATE_BISECT:
      return "a bisection";
    default:
      return "a rebase";
  }
}

Result<os::ActingAs> HomeRepository::act_as_owner() const {
  return os::ActingAs::begin(state_->uid, state_->gid);
}

void HomeRepository::refresh() const {
  (void)git_odb_refresh(state_->odb);
}

}  // namespace cofferdam::orchestrator::changes
