#include "orchestrator/changes/branch_move.h"

#include <fcntl.h>
#include <git2.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>

#include "common/os/files.h"
#include "common/os/object_copy.h"
#include "common/os/tree_paths.h"
#include "orchestrator/changes/change_json.h"
#include "orchestrator/changes/forbidden_names.h"
#include "orchestrator/reader/refs.h"

namespace cofferdam::orchestrator::changes {
namespace {

namespace fs = std::filesystem;
using reader::ObjectId;

constexpr std::size_t kMaxIndex = std::size_t{1} << 30U;
constexpr const char* kHeads = "refs/heads/";

Error git_failure(const std::string& what) {
  const git_error* error = git_error_last();
  return Error(what + ": " +
               (error != nullptr && error->message != nullptr ? error->message : "unknown"));
}

using Index = std::unique_ptr<git_index, void (*)(git_index*)>;

Result<Index> open_index(const fs::path& file) {
  git_index* raw = nullptr;
  if (git_index_open(&raw, file.c_str()) != 0) return git_failure("the index");
  Index index(raw, git_index_free);
  if (git_index_read(raw, 1) != 0) return git_failure("the index");
  return index;
}

std::optional<TreeFile> entry_at(git_index* index, const std::string& path) {
  const git_index_entry* entry = git_index_get_bypath(index, path.c_str(), 0);
  if (entry == nullptr) return std::nullopt;
  TreeFile file;
  std::copy(std::begin(entry->id.id), std::end(entry->id.id), file.id.bytes.begin());
  switch (entry->mode) {
    case GIT_FILEMODE_BLOB_EXECUTABLE:
      file.kind = reader::EntryKind::kExecutable;
      break;
    case GIT_FILEMODE_LINK:
      file.kind = reader::EntryKind::kSymlink;
      break;
    case GIT_FILEMODE_COMMIT:
      file.kind = reader::EntryKind::kSubmodule;
      break;
    default:
      break;
  }
  return file;
}

// Marks that say that the workspace's file is not to be looked at.
bool is_marked(git_index* index, const std::string& path) {
  const git_index_entry* entry = git_index_get_bypath(index, path.c_str(), 0);
  if (entry == nullptr) return false;
  return (entry->flags & GIT_INDEX_ENTRY_VALID) != 0 ||
         (entry->flags_extended &
          (GIT_INDEX_ENTRY_SKIP_WORKTREE | GIT_INDEX_ENTRY_INTENT_TO_ADD)) != 0;
}

std::vector<StuckStep> staged_in(git_index* index, const BranchMove& move, Position at) {
  std::vector<StuckStep> stuck;
  if (git_index_has_conflicts(index) != 0) {
    stuck.push_back({0, "the index", "it holds conflicts that are not resolved"});
  }
  for (const TreeDifference& path : move.paths) {
    const auto now = entry_at(index, path.path);
    const auto& expected = at == Position::kBefore ? path.before : path.after;
    const auto& done = at == Position::kBefore ? path.after : path.before;
    if (is_marked(index, path.path)) {
      stuck.push_back({0, path.path, "the index has a mark on it (git ls-files -v)"});
    } else if (now != expected && now != done) {
      stuck.push_back({0, path.path, "you have staged another version of it"});
    }
  }
  return stuck;
}

// Where every entry is already as `at` says.
bool index_stands(git_index* index, const BranchMove& move, Position at) {
  for (const TreeDifference& path : move.paths) {
    const auto& expected = at == Position::kBefore ? path.before : path.after;
    if (entry_at(index, path.path) != expected) return false;
  }
  return true;
}

Status edit(git_index* index, const BranchMove& move, Position to) {
  // Removals first: a directory may stand where a file stood.
  for (const TreeDifference& path : move.paths) {
    const auto& wanted = to == Position::kAfter ? path.after : path.before;
    if (!wanted && git_index_get_bypath(index, path.path.c_str(), 0) != nullptr &&
        git_index_remove(index, path.path.c_str(), 0) != 0) {
      return git_failure(path.path);
    }
  }
  for (const TreeDifference& path : move.paths) {
    const auto& wanted = to == Position::kAfter ? path.after : path.before;
    if (!wanted) continue;
    // Without times and sizes: git looks at the file itself the next time.
    git_index_entry entry{};
    entry.path = path.path.c_str();
    entry.mode = reader::mode_of(wanted->kind);
    std::copy(wanted->id.bytes.begin(), wanted->id.bytes.end(), std::begin(entry.id.id));
    if (git_index_add(index, &entry) != 0) return git_failure(path.path);
  }
  return {};
}

constexpr std::string_view kAside = "cofferdam-index-";
constexpr const char* kOwnLock = "lock";

// What a run that was killed left: its copy of the index, and its lock where that is its own. The
// caller holds the workspace's lock, so nobody is at work on it.
Status clear_leftovers(const fs::path& git_directory) {
  TRY_ASSIGN(const os::UniqueFd directory,
             os::open_file(git_directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  std::vector<std::string> names;
  TRY(os::for_each_name(directory.get(), [&](std::string_view name) -> Status {
    if (name.starts_with(kAside)) names.emplace_back(name);
    return {};
  }));
  for (const std::string& name : names) {
    struct stat own {};
    struct stat held {};
    const fs::path lock = git_directory / "index.lock";
    if (::lstat((git_directory / name / kOwnLock).c_str(), &own) == 0 &&
        ::lstat(lock.c_str(), &held) == 0 && own.st_ino == held.st_ino &&
        own.st_dev == held.st_dev && ::unlink(lock.c_str()) != 0) {
      return Error::from_errno("remove the lock of a merge that was cut short");
    }
    TRY(os::remove_tree(git_directory / name));
  }
  return {};
}

// git's lock of the index: a file beside it, which becomes the index or goes away.
class IndexLock final {
 public:
  // `aside` is on the same file system and tells a later run whose lock it was.
  static Result<IndexLock> take(const fs::path& git_directory, const fs::path& aside) {
    const fs::path file = git_directory / "index.lock";
    const fs::path own = aside / kOwnLock;
    ::unlink(own.c_str());
    os::UniqueFd fd(::open(own.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!fd) return Error::from_errno("lock the index");
    if (::link(own.c_str(), file.c_str()) != 0) {
      if (errno == EEXIST) return Error("another git command is at work (" + file.string() + ")");
      return Error::from_errno("lock the index");
    }
    return IndexLock(git_directory, std::move(fd));
  }
  IndexLock(IndexLock&&) = default;
  IndexLock& operator=(IndexLock&&) = delete;
  ~IndexLock() {
    if (fd_) ::unlink((directory_ / "index.lock").c_str());
  }
  Status replace_with(const std::string& bytes) {
    struct stat st {};
    if (::stat((directory_ / "index").c_str(), &st) == 0 &&
        ::fchmod(fd_.get(), st.st_mode & 0777U) != 0) {
      return Error::from_errno("chmod");
    }
    TRY(os::write_all(fd_.get(), bytes));
    if (::fsync(fd_.get()) != 0) return Error::from_errno("sync the index");
    if (::rename((directory_ / "index.lock").c_str(), (directory_ / "index").c_str()) != 0) {
      return Error::from_errno("replace the index");
    }
    fd_.reset();
    return os::sync_directory(directory_);
  }

 private:
  IndexLock(fs::path directory, os::UniqueFd fd)
      : directory_(std::move(directory)), fd_(std::move(fd)) {}
  fs::path directory_;
  os::UniqueFd fd_;
};

// The index with the move applied; nothing where it stands there already.
Result<std::optional<std::string>> moved_index(const fs::path& git_directory, const fs::path& aside,
                                               const BranchMove& move, Position to) {
  const fs::path copy = aside / "index";
  const auto bytes = os::read_file(git_directory / "index", kMaxIndex);
  if (bytes.ok()) {
    TRY(os::write_file_atomic(copy, *bytes));
  } else if (bytes.error().error_number() != ENOENT) {
    return bytes.error();
  }
  TRY_ASSIGN(const Index index, open_index(copy));
  const auto stuck = staged_in(index.get(), move, other(to));
  if (!stuck.empty()) return Error(stuck.front().path + ": " + stuck.front().why);
  if (index_stands(index.get(), move, to)) return std::optional<std::string>();
  TRY(edit(index.get(), move, to));
  if (git_index_write(index.get()) != 0) return git_failure("the index");
  TRY_ASSIGN(std::string result, os::read_file(copy, kMaxIndex));
  return std::optional<std::string>(std::move(result));
}

Result<HomeRepository> open_home(const std::string& workspace) {
  std::string why;
  TRY_ASSIGN(auto home, HomeRepository::open(workspace, why));
  if (!home.has_value()) return Error(why);
  return std::move(*home);
}

Status check_branch(const HomeRepository& home, const BranchMove& move) {
  TRY_ASSIGN(const HomeHead head, home.head());
  if (head.branch != move.branch) {
    return Error("HEAD is " + (head.branch.empty() ? "detached" : head.branch) + " now, not " +
                 move.branch);
  }
  if (head.tip != move.before && head.tip != move.after) {
    return Error("branch " + move.branch + " was moved");
  }
  return {};
}

Json file_json(const std::optional<TreeFile>& file) {
  if (!file) return nullptr;
  return {{"mode", octal(reader::mode_of(file->kind))}, {"id", reader::to_hex(file->id)}};
}

Result<std::optional<TreeFile>> file_from_json(const Json& json) {
  if (json.is_null()) return std::optional<TreeFile>();
  TreeFile file;
  const std::string mode = json.is_object() ? json.value("mode", "") : std::string();
  const auto id = json.is_object() ? reader::id_from_hex(json.value("id", "")) : std::nullopt;
  for (const auto kind : {reader::EntryKind::kFile, reader::EntryKind::kExecutable,
                          reader::EntryKind::kSymlink, reader::EntryKind::kSubmodule}) {
    if (!id || octal(reader::mode_of(kind)) != mode) continue;
    return std::optional<TreeFile>(TreeFile{kind, *id});
  }
  return Error("a merge's plan: not an entry of a tree");
}

}  // namespace

Result<std::vector<StuckStep>> staged_otherwise(const HomeRepository& home, const BranchMove& move,
                                                Position at) {
  TRY_ASSIGN(const Index index, open_index(home.git_directory() / "index"));
  return staged_in(index.get(), move, at);
}

Result<std::vector<bool>> are_tracked(const HomeRepository& home,
                                      const std::vector<TreeDifference>& paths) {
  TRY_ASSIGN(const Index index, open_index(home.git_directory() / "index"));
  std::vector<bool> tracked;
  tracked.reserve(paths.size());
  for (const TreeDifference& path : paths) {
    tracked.push_back(entry_at(index.get(), path.path).has_value());
  }
  return tracked;
}

Status move_branch(const std::string& workspace, const BranchMove& move, Position to) {
  TRY_ASSIGN(const HomeRepository home, open_home(workspace));
  TRY(check_branch(home, move));
  const std::string name = kHeads + move.branch;
  const ObjectId& wanted = to == Position::kAfter ? move.after : move.before;
  const ObjectId& left = to == Position::kAfter ? move.before : move.after;
  const fs::path directory = home.git_directory();
  std::optional<std::string> changed;
  std::string before;
  {
    TRY_ASSIGN(const auto owner, home.act_as_owner());
    TRY(clear_leftovers(directory));
    TRY_ASSIGN(const os::TempDir aside, os::TempDir::create(directory, kAside));
    TRY_ASSIGN(IndexLock lock, IndexLock::take(directory, aside.path()));
    TRY_ASSIGN(changed, moved_index(directory, aside.path(), move, to));
    if (changed) {
      auto bytes = os::read_file(directory / "index", kMaxIndex);
      if (bytes.ok()) before = std::move(bytes).value();
      TRY(lock.replace_with(*changed));
    }
  }
  if (home.reference(name) == wanted) return {};
  const std::string log = std::string("cofferdam: ") +
                          (to == Position::kAfter ? "fast-forward" : "fast-forward taken back");
  const Status moved = home.set_reference(name, wanted, left, log);
  if (moved.ok() || !changed || before.empty()) return moved;
  TRY_ASSIGN(const auto owner, home.act_as_owner());
  TRY_ASSIGN(const os::TempDir aside, os::TempDir::create(directory, kAside));
  TRY_ASSIGN(IndexLock lock, IndexLock::take(directory, aside.path()));
  // Only what was just written is replaced.
  const auto now = os::read_file(directory / "index", kMaxIndex);
  if (now.ok() && *now == *changed) TRY(lock.replace_with(before));
  return moved;
}

Result<std::vector<StuckStep>> branch_changed_since(const std::string& workspace,
                                                    const BranchMove& move, Position at) {
  TRY_ASSIGN(const HomeRepository home, open_home(workspace));
  TRY_ASSIGN(const HomeHead head, home.head());
  const ObjectId& expected = at == Position::kAfter ? move.after : move.before;
  std::vector<StuckStep> changed;
  if (head.branch != move.branch) {
    changed.push_back({0, "HEAD", "it is not " + move.branch + " any more"});
  } else if (head.tip != expected) {
    changed.push_back({0, "branch " + move.branch, "it was moved since"});
  } else {
    TRY_ASSIGN(changed, staged_otherwise(home, move, at));
  }
  return changed;
}

Json to_json(const BranchMove& move) {
  Json paths = Json::array();
  for (const TreeDifference& path : move.paths) {
    Json row = path_to_json(path.path);
    row["before"] = file_json(path.before);
    row["after"] = file_json(path.after);
    paths.push_back(std::move(row));
  }
  return {{"branch", path_to_json(move.branch)},
          {"before", reader::to_hex(move.before)},
          {"after", reader::to_hex(move.after)},
          {"paths", std::move(paths)}};
}

Result<BranchMove> branch_move_from_json(const Json& json) {
  const Error broken("a merge's plan: not the move of a branch");
  if (!json.is_object() || !json.contains("paths") || !json["paths"].is_array()) return broken;
  BranchMove move;
  if (!json.contains("branch")) return broken;
  if (json["branch"].is_string()) {
    move.branch = json["branch"].get<std::string>();  // the older form
  } else {
    TRY_ASSIGN(move.branch, path_from_json(json["branch"]));
  }
  const auto before = reader::id_from_hex(json.value("before", ""));
  const auto after = reader::id_from_hex(json.value("after", ""));
  if (!reader::is_branch_name(move.branch) || !before || !after) return broken;
  move.before = *before;
  move.after = *after;
  for (const Json& row : json["paths"]) {
    TreeDifference path;
    TRY_ASSIGN(path.path, path_from_json(row));
    TRY_ASSIGN(path.before, file_from_json(row.value("before", Json())));
    TRY_ASSIGN(path.after, file_from_json(row.value("after", Json())));
    move.paths.push_back(std::move(path));
  }
  return move;
}

}  // namespace cofferdam::orchestrator::changes
