#include "common/os/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <system_error>
#include <vector>

namespace cofferdam::os {

namespace fs = std::filesystem;

Result<UniqueFd> open_file(const fs::path& path, int flags, mode_t mode) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return Error::from_errno("open " + path.string());
  return UniqueFd(fd);
}

Result<std::string> read_fd(int fd, std::size_t limit) {
  std::string out;
  char buffer[65536];
  for (;;) {
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0) {
      if (errno == EINTR) continue;
      return Error::from_errno("read");
    }
    if (got == 0) return out;
    out.append(buffer, static_cast<std::size_t>(got));
    if (out.size() > limit) return Error("larger than " + std::to_string(limit) + " bytes", EFBIG);
  }
}

Result<std::string> read_file(const fs::path& path, std::size_t limit) {
  TRY_ASSIGN(const UniqueFd fd, open_file(path, O_RDONLY));
  return read_fd(fd.get(), limit).context(path.string());
}

Status write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0) {
      if (errno == EINTR) continue;
      return Error::from_errno("write");
    }
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return {};
}

Status write_file_atomic(const fs::path& path, std::string_view bytes, mode_t mode) {
  std::string temporary = path.string() + ".XXXXXX";
  UniqueFd fd(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd) return Error::from_errno("mkostemp " + temporary);
  const auto give_up = [&](const Error& error) {
    ::unlink(temporary.c_str());
    return error.context("write " + path.string());
  };
  if (Status s = write_all(fd.get(), bytes); !s.ok()) return give_up(s.error());
  if (::fchmod(fd.get(), mode) != 0) return give_up(Error::from_errno("fchmod"));
  if (::fsync(fd.get()) != 0) return give_up(Error::from_errno("fsync"));
  if (::rename(temporary.c_str(), path.c_str()) != 0) return give_up(Error::from_errno("rename"));
  return {};
}

Status make_directories(const fs::path& path, mode_t mode) {
  if (path.empty()) return Error("empty path");
  std::vector<fs::path> missing;
  fs::path current = path;
  struct stat st {};
  while (::stat(current.c_str(), &st) != 0) {
    if (errno != ENOENT) return Error::from_errno("stat " + current.string());
    missing.push_back(current);
    if (!current.has_parent_path() || current.parent_path() == current) break;
    current = current.parent_path();
  }
  if (missing.empty()) {
    if (!S_ISDIR(st.st_mode)) return Error::from_errno(path.string(), ENOTDIR);
    return {};
  }
  for (auto it = missing.rbegin(); it != missing.rend(); ++it) {
    if (it->filename().empty()) continue;
    if (::mkdir(it->c_str(), mode) != 0 && errno != EEXIST) {
      return Error::from_errno("mkdir " + it->string());
    }
  }
  return {};
}

Status remove_tree(const fs::path& path) {
  // Directories may have been left without permission for their owner.
  std::error_code code;
  fs::remove_all(path, code);
  if (!code) return {};
  if (code.value() == EACCES) {
    for (fs::recursive_directory_iterator it(path, code), end; !code && it != end;
         it.increment(code)) {
      if (it->is_directory(code) && !it->is_symlink(code)) {
        fs::permissions(it->path(), fs::perms::owner_all, fs::perm_options::add, code);
      }
      code.clear();
    }
    fs::permissions(path, fs::perms::owner_all, fs::perm_options::add, code);
    code.clear();
    fs::remove_all(path, code);
    if (!code) return {};
  }
  return Error::from_errno("remove " + path.string(), code.value());
}

Result<TempDir> TempDir::create(const fs::path& parent, std::string_view prefix) {
  std::string name = (parent / (std::string(prefix) + "XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr) return Error::from_errno("mkdtemp " + name);
  return TempDir(fs::path(name));
}

TempDir& TempDir::operator=(TempDir&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

TempDir::~TempDir() {
  if (!path_.empty()) (void)remove_tree(path_).ok();
}

}  // namespace cofferdam::os
