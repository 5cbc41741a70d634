#include "fsproxy/overlay/tree_walk.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

namespace cofferdam::overlay {
namespace {

// Directories that their owner may not enter are opened after adding permission.
Result<DirStream> open_stream_for_removal(int dir_fd, const std::string& name) {
  auto opened = open_stream(dir_fd, name);
  if (opened.ok() || opened.error().error_number() != EACCES) return opened;
  if (::fchmodat(dir_fd, name.c_str(), 0700, 0) != 0) return Error::from_errno("chmod");
  return open_stream(dir_fd, name);
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
  std::vector<DirStream> stack;
  TRY_ASSIGN(DirStream first, open_stream(dir_fd, "."));
  stack.push_back(std::move(first));
  while (!stack.empty()) {
    DIR* top = stack.back().get();
    TRY_ASSIGN(const auto entry, next_entry(top));
    if (!entry) {
      stack.pop_back();
      continue;
    }
    struct stat st {};
    if (::fstatat(::dirfd(top), entry->name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
    visit(st);
    if (!S_ISDIR(st.st_mode)) continue;
    auto below = open_stream(::dirfd(top), entry->name);
    if (below.ok()) {
      stack.push_back(std::move(below).value());
    } else if (below.error().error_number() != EACCES) {
      return below.error();
    }
  }
  return {};
}

Status remove_below(int dir_fd) {
  struct Level {
    DirStream stream;
    std::string name;  // in the level above
  };
  std::vector<Level> stack;
  TRY_ASSIGN(DirStream first, open_stream(dir_fd, "."));
  stack.push_back({std::move(first), ""});
  while (!stack.empty()) {
    const int here = ::dirfd(stack.back().stream.get());
    TRY_ASSIGN(const auto entry, next_entry(stack.back().stream.get()));
    if (!entry) {
      const std::string name = stack.back().name;
      stack.pop_back();
      if (!stack.empty() &&
          ::unlinkat(::dirfd(stack.back().stream.get()), name.c_str(), AT_REMOVEDIR) != 0) {
        return Error::from_errno("remove directory");
      }
      continue;
    }
    if (S_ISDIR(entry->type)) {
      TRY_ASSIGN(DirStream below, open_stream_for_removal(here, entry->name));
      stack.push_back({std::move(below), entry->name});
    } else if (::unlinkat(here, entry->name.c_str(), 0) != 0) {
      return Error::from_errno("remove");
    }
  }
  return {};
}

}  // namespace cofferdam::overlay
