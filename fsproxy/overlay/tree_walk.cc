#include "fsproxy/overlay/tree_walk.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cstring>

#include "common/os/unique_fd.h"
#include "fsproxy/overlay/widened.h"

namespace cofferdam::overlay {
namespace {

os::UniqueFd open_directory(int dir_fd, const std::string& name) {
  return os::UniqueFd(
      ::openat(dir_fd, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

// Where a walk is: one descriptor, and for each directory above what is still to be visited there.
class Descent final {
 public:
  explicit Descent(int top) : top_(top) {}

  struct Level {
    std::string name;  // in the level above
    ino_t inode = 0;
    std::vector<std::string> pending;  // directories
  };

  bool done() const { return levels_.empty(); }
  Level& level() { return levels_.back(); }
  int here() const { return here_.get(); }

  // Into (here, name), or the top for ".". False: it may not be opened.
  Result<bool> enter(const std::string& name) {
    const int above = levels_.empty() ? top_ : here_.get();
    os::UniqueFd below = open_directory(above, name);
    struct stat st {};
    if (!below && errno == EACCES &&
        ::fstatat(above, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0) {
      // Its owner, who we are, took the permission from itself.
      const Widened readable(above, name, 0500, false);
      below = open_directory(above, name);
      if (!below && errno == EACCES) return false;
    }
    if (!below || ::fstat(below.get(), &st) != 0) return Error::from_errno("open directory");
    here_ = std::move(below);
    levels_.push_back({name, st.st_ino, {}});
    return true;
  }

  Status leave() {
    levels_.pop_back();
    if (levels_.empty()) return {};
    os::UniqueFd above = open_directory(here_.get(), "..");
    struct stat st {};
    if (above && ::fstat(above.get(), &st) == 0 && st.st_ino == levels_.back().inode) {
      here_ = std::move(above);
      return {};
    }
    // Not from here: its owner took the permission. From the top, then.
    os::UniqueFd at = open_directory(top_, ".");
    for (std::size_t i = 1; at && i < levels_.size(); ++i) {
      at = open_directory(at.get(), levels_[i].name);
    }
    if (!at) return Error::from_errno("open directory");
    here_ = std::move(at);
    return {};
  }

 private:
  int top_;
  os::UniqueFd here_;
  std::vector<Level> levels_;
};

// Empties (top, name): directories in it move up into `top`.
Status flatten(int top, const std::string& name, std::uint64_t& next) {
  os::UniqueFd dir = open_directory(top, name);
  if (!dir && errno == EACCES && ::fchmodat(top, name.c_str(), 0700, 0) == 0) {
    dir = open_directory(top, name);
  }
  if (!dir) return Error::from_errno("open directory");
  // Its owner may have taken the permission to delete in it.
  if (::fchmod(dir.get(), 0700) != 0) return Error::from_errno("chmod");
  TRY_ASSIGN(const DirStream stream, open_stream(dir.get(), "."));
  for (;;) {
    TRY_ASSIGN(const auto entry, next_entry(stream.get()));
    if (!entry) return {};
    if (!S_ISDIR(entry->type)) {
      if (::unlinkat(dir.get(), entry->name.c_str(), 0) != 0) return Error::from_errno("remove");
      continue;
    }
    // Where it fails and mattered, opening or emptying the directory tells.
    (void)!::fchmodat(dir.get(), entry->name.c_str(), 0700, 0);
    int moved = -1;
    do {
      const std::string up = "flat" + std::to_string(next++);
      moved = ::renameat2(dir.get(), entry->name.c_str(), top, up.c_str(), RENAME_NOREPLACE);
    } while (moved != 0 && errno == EEXIST);
    if (moved != 0) return Error::from_errno("remove directory");
  }
}

}  // namespace

Result<DirStream> open_stream(int dir_fd, const std::string& name) {
  const int fd = ::openat(dir_fd, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return Error::from_errno("open directory");
  DIR* stream = ::fdopendir(fd);
  if (stream == nullptr) {
    const Error error = Error::from_errno("open directory");
    ::close(fd);
    return error;
  }
  return DirStream(stream);
}

Result<std::optional<NamedType>> next_entry(DIR* stream) {
  for (;;) {
    errno = 0;
    const struct dirent* entry = ::readdir(stream);
    if (entry == nullptr) {
      if (errno != 0) return Error::from_errno("read directory");
      return std::optional<NamedType>();
    }
    if (std::strcmp(entry->d_name, ".") == 0 || std::strcmp(entry->d_name, "..") == 0) continue;
    NamedType out{entry->d_name, static_cast<mode_t>(DTTOIF(entry->d_type)), entry->d_ino};
    if (entry->d_type == DT_UNKNOWN) {
      struct stat st {};
      if (::fstatat(::dirfd(stream), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
      out.type = st.st_mode & S_IFMT;
    }
    return std::optional<NamedType>(std::move(out));
  }
}

Status walk_below(int dir_fd, const std::function<void(const struct stat&)>& visit) {
  Descent walk(dir_fd);
  std::string next = ".";
  for (;;) {
    TRY_ASSIGN(const bool entered, walk.enter(next));
    if (entered) {
      TRY_ASSIGN(const DirStream stream, open_stream(walk.here(), "."));
      for (;;) {
        TRY_ASSIGN(auto entry, next_entry(stream.get()));
        if (!entry) break;
        struct stat st {};
        if (::fstatat(walk.here(), entry->name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
        visit(st);
        if (S_ISDIR(st.st_mode)) walk.level().pending.push_back(std::move(entry->name));
      }
    } else if (walk.done()) {
      return Error::from_errno("open directory", EACCES);
    }
    while (walk.level().pending.empty()) {
      TRY(walk.leave());
      if (walk.done()) return {};
    }
    next = std::move(walk.level().pending.back());
    walk.level().pending.pop_back();
  }
}

Status remove_below(int dir_fd) {
  std::uint64_t next = 0;
  for (bool found = true; found;) {
    found = false;
    TRY_ASSIGN(const DirStream stream, open_stream(dir_fd, "."));
    for (;;) {
      TRY_ASSIGN(const auto entry, next_entry(stream.get()));
      if (!entry) break;
      found = true;
      const bool is_dir = S_ISDIR(entry->type);
      if (is_dir) TRY(flatten(dir_fd, entry->name, next));
      if (::unlinkat(dir_fd, entry->name.c_str(), is_dir ? AT_REMOVEDIR : 0) != 0) {
        return Error::from_errno("remove");
      }
    }
  }
  return {};
}

}  // namespace cofferdam::overlay
