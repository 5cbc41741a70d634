#include "orchestrator/workspace.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <system_error>

#include "common/base/escape.h"
#include "common/os/files.h"
#include "common/os/host_probes.h"
#include "common/os/regular_file.h"

namespace cofferdam::orchestrator {
namespace {

namespace fs = std::filesystem;

// Never a workspace themselves, and never inside one.
constexpr std::array kSystem = {"/usr",  "/bin", "/sbin", "/lib", "/lib64", "/etc", "/boot",
                                "/proc", "/sys", "/dev",  "/run", "/var",   "/tmp", "/home"};
// Nothing below them is a workspace either: the sandbox has its own.
constexpr std::array kOwnInside = {"/proc", "/sys",  "/dev", "/etc",
                                   "/bin",  "/sbin", "/lib", "/lib64"};

bool lies_in(const fs::path& path, const fs::path& directory) {
  const fs::path rest = path.lexically_relative(directory);
  return !rest.empty() && *rest.begin() != "..";
}

Result<fs::path> real_directory(const fs::path& path) {
  std::error_code code;
  fs::path real = fs::canonical(path, code);
  if (code) return Error::from_errno(path.string(), code.value());
  if (!fs::is_directory(real, code)) return Error::from_errno(path.string(), ENOTDIR);
  return real;
}

Status check_mount(const fs::path& path) {
  TRY_ASSIGN(const bool fuse, os::is_on_fuse(path.string()));
  if (!fuse) return {};
  // Fields 5 and, after " - ", the type and the source (proc(5), mountinfo).
  TRY_ASSIGN(const std::string table, os::read_file("/proc/self/mountinfo"));
  std::string best;
  bool ours = false;
  for (std::size_t at = 0; at < table.size();) {
    const std::size_t end = std::min(table.find('\n', at), table.size());
    const std::string line = table.substr(at, end - at);
    at = end + 1;
    std::size_t field = 0;
    for (int i = 0; i < 4 && field != std::string::npos; ++i) field = line.find(' ', field + 1);
    const std::size_t dash = line.find(" - ");
    if (field == std::string::npos || dash == std::string::npos) continue;
    const std::string point = line.substr(field + 1, line.find(' ', field + 1) - field - 1);
    if (!lies_in(path, point) || point.size() < best.size()) continue;
    best = point;
    ours = line.find("cofferdam", dash) != std::string::npos;
  }
  if (ours) return Error(path.string() + " is another sandbox's mount");
  return {};
}

Status check_place(const fs::path& path, const WorkspaceQuery& query) {
  const std::string shown = path.string();
  const std::string remedy = "; choose a project's directory with --workspace DIR";
  if (!is_valid_utf8(shown) || escape_for_terminal(shown) != shown) {
    return Error(shown + ": a workspace's path must be printable UTF-8");
  }
  if (path == "/") return Error("the workspace cannot be /" + remedy);
  if (path == query.home) return Error("the workspace cannot be HOME itself" + remedy);
  for (const char* system : kSystem) {
    if (path == system) return Error("the workspace cannot be " + shown + remedy);
  }
  for (const char* own : kOwnInside) {
    if (lies_in(path, own)) {
      return Error("the workspace cannot lie in " + std::string(own) + ": the sandbox has its own" +
                   remedy);
    }
  }
  if (lies_in(query.home, path)) return Error(shown + " contains your HOME" + remedy);
  if (lies_in(query.state, path)) {
    return Error(shown + " contains Cofferdam's state directory " + query.state.string() + remedy);
  }
  if (lies_in(path, query.state)) {
    return Error(shown + " lies in Cofferdam's state directory" + remedy);
  }
  return check_mount(path);
}

// The nearest directory upwards that holds `.git` and belongs to the caller; empty: none.
fs::path git_top_level(const fs::path& directory) {
  for (fs::path at = directory;; at = at.parent_path()) {
    struct stat st {};
    if (::lstat((at / ".git").c_str(), &st) == 0) {
      const bool own = st.st_uid == ::geteuid() || st.st_uid == 0;
      return own && (S_ISDIR(st.st_mode) || S_ISREG(st.st_mode)) ? at : fs::path();
    }
    if (at == at.parent_path()) return {};
  }
}

std::string one_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text;
}

bool is_git_directory(const fs::path& path) {
  std::error_code code;
  return fs::is_regular_file(fs::symlink_status(path / "HEAD", code)) &&
         fs::is_directory(path / "objects", code) && fs::is_directory(path / "refs", code);
}

// The common directory that a linked worktree's `.git` file leads to. The file comes from the
// repository, so it is believed only where the other side points back: the worktree's own
// directory is `COMMON/worktrees/NAME`, and its `gitdir` file names this workspace.
Result<fs::path> worktree_common_directory(const fs::path& workspace) {
  TRY_ASSIGN(std::string text, os::read_regular_file(workspace / ".git", 4096));
  text = one_line(std::move(text));
  constexpr std::string_view kPrefix = "gitdir: ";
  if (!text.starts_with(kPrefix)) return Error("it does not begin with gitdir:");
  std::error_code code;
  const fs::path own = fs::canonical(workspace / text.substr(kPrefix.size()), code);
  if (code) return Error("it names a directory that is not there");
  if (own.parent_path().filename() != "worktrees") return Error("it names no linked worktree");
  fs::path common = own.parent_path().parent_path();
  TRY_ASSIGN(const std::string back, os::read_regular_file(own / "gitdir", 4096));
  const fs::path named = fs::weakly_canonical(own / one_line(back), code);
  if (code || named != workspace / ".git")
    return Error("that worktree belongs to another directory");
  struct stat st {};
  if (::stat(common.c_str(), &st) != 0 || (st.st_uid != ::geteuid() && st.st_uid != 0)) {
    return Error("the common git directory belongs to another user");
  }
  if (!is_git_directory(common)) return Error("the common git directory is not one");
  return common;
}

void find_git_directory(Workspace* workspace, const WorkspaceQuery& query) {
  struct stat st {};
  if (::lstat((workspace->path / ".git").c_str(), &st) != 0 || !S_ISREG(st.st_mode)) return;
  auto common = worktree_common_directory(workspace->path);
  Status place;
  if (common.ok() && !lies_in(*common, workspace->path)) place = check_place(*common, query);
  if (!common.ok() || !place.ok()) {
    workspace->notes.push_back("git does not work inside: the workspace's .git is a file, and " +
                               (common.ok() ? place.error() : common.error()).message());
    return;
  }
  if (!lies_in(*common, workspace->path)) workspace->git_directory = std::move(common).value();
}

}  // namespace

Result<Workspace> find_workspace(const WorkspaceQuery& query) {
  Workspace workspace;
  TRY_ASSIGN(const fs::path directory, real_directory(query.directory));
  if (!query.asked.empty()) {
    TRY_ASSIGN(workspace.path, real_directory(query.directory / query.asked));
    TRY(check_place(workspace.path, query));
  } else {
    const fs::path top = git_top_level(directory);
    if (!top.empty() && check_place(top, query).ok()) {
      workspace.path = top;
    } else {
      TRY(check_place(directory, query));
      workspace.path = directory;
    }
  }
  workspace.directory = lies_in(directory, workspace.path) ? directory : workspace.path;
  struct stat st {};
  if (::stat(workspace.path.c_str(), &st) != 0) {
    return Error::from_errno(workspace.path.string());
  }
  workspace.owner_uid = st.st_uid;
  workspace.owner_gid = st.st_gid;
  workspace.has_git = ::lstat((workspace.path / ".git").c_str(), &st) == 0;
  find_git_directory(&workspace, query);
  return workspace;
}

}  // namespace cofferdam::orchestrator
