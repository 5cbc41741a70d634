// How a bulk tree is copied: its directories first, then what they hold, by several hands.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <vector>

#include "common/os/beneath.h"
#include "common/os/files.h"
#include "common/os/tree_paths.h"
#include "orchestrator/changes/bulk_tree.h"
#include "orchestrator/changes/side_by_side.h"

namespace cofferdam::orchestrator::changes {
namespace {

constexpr std::uint32_t kSetIdBits = 06000;
constexpr std::size_t kPiece = 256;

Status set_times(int fd, const struct stat& st) {
  const std::array<struct timespec, 2> times = {st.st_atim, st.st_mtim};
  if (::futimens(fd, times.data()) != 0) return Error::from_errno("utimens");
  return {};
}

class Copier final {
 public:
  Copier(int from, int to, const TreeOwner& owner, const Copied& copied)
      : from_(from), to_(to), owner_(owner), copied_(copied) {}

  Status copy() {
    TRY(make(""));
    for (std::size_t i = 0; i < directories_.size(); ++i) TRY(list(i));
    TRY(side_by_side(pieces_.size(), [&](std::size_t i) { return fill(pieces_[i]); }));
    // Children before their parents, whose times they change.
    for (auto directory = directories_.rbegin(); directory != directories_.rend(); ++directory) {
      TRY(finish(*directory));
    }
    return {};
  }

 private:
  struct Directory {
    std::string path;  // below both tops
    struct stat st {};
    bool born_right = false;  // what is made in it has owner and mode as they shall be
  };
  struct Piece {
    std::size_t directory;
    std::vector<std::string> names;
  };
  // Open on both sides.
  struct Ends {
    os::UniqueFd from;
    os::UniqueFd to;
  };

  Result<Ends> open(const std::string& path) const {
    Ends ends;
    TRY_ASSIGN(ends.from, os::open_in_tree(from_, path, O_RDONLY | O_DIRECTORY));
    TRY_ASSIGN(ends.to, os::open_in_tree(to_, path, O_RDONLY | O_DIRECTORY));
    return ends;
  }

  // A directory that is made already.
  Status make(const std::string& path) {
    Directory directory;
    directory.path = path;
    TRY_ASSIGN(const Ends ends, open(path));
    if (::fstat(ends.from.get(), &directory.st) != 0) return Error::from_errno("stat");
    TRY_ASSIGN(directory.born_right, gives_what_is_wanted(ends.to.get()));
    directories_.push_back(std::move(directory));
    return {};
  }

  Status list(std::size_t index) {
    const std::string path = directories_[index].path;
    TRY_ASSIGN(const Ends ends, open(path));
    Piece piece{index, {}};
    TRY(os::for_each_name(ends.from.get(), [&](std::string_view name) -> Status {
      TRY_ASSIGN(const struct stat st, os::stat_in(ends.from.get(), name));
      if (!S_ISDIR(st.st_mode)) {
        piece.names.emplace_back(name);
        if (piece.names.size() < kPiece) return {};
        pieces_.push_back(std::move(piece));
        piece = {index, {}};
        return {};
      }
      const std::string text(name);
      if (::mkdirat(ends.to.get(), text.c_str(), 0700) != 0) return Error::from_errno("mkdir");
      return make(path.empty() ? text : path + "/" + text);
    }));
    if (!piece.names.empty()) pieces_.push_back(std::move(piece));
    return {};
  }

  Status fill(const Piece& piece) {
    const Directory& directory = directories_[piece.directory];
    TRY_ASSIGN(const Ends ends, open(directory.path));
    const auto buffer = std::make_unique_for_overwrite<Buffer>();
    for (const std::string& name : piece.names) {
      TRY(entry(ends, name, directory.born_right, *buffer));
    }
    if (copied_) copied_(piece.names.size());
    return {};
  }

  using Buffer = std::array<char, 262144>;

  Status entry(const Ends& ends, const std::string& name, bool born_right, Buffer& buffer) {
    const os::UniqueFd source(::openat(ends.from.get(), name.c_str(),
                                       O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    if (!source && errno == ELOOP) return link(ends, name);
    if (!source) return Error::from_errno("open " + name);
    struct stat st {};
    if (::fstat(source.get(), &st) != 0) return Error::from_errno("stat");
    if (!S_ISREG(st.st_mode) || (st.st_mode & kSetIdBits) != 0) {
      return Error("the sandbox's version changed while it was read");
    }
    const std::uint32_t mode = st.st_mode & ~owner_.umask & 01777U;
    // Each change of an inode costs as much as its making. The directory is nobody else's yet, so
    // that a file may have its mode from the beginning.
    const bool needs_mode = (mode & ~0777U) != 0 || !born_right;
    const os::UniqueFd to(::openat(ends.to.get(), name.c_str(),
                                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                                   needs_mode ? 0600U : mode));
    if (!to) return Error::from_errno("create");
    TRY(content(source.get(), to.get(), static_cast<std::uint64_t>(st.st_size), buffer));
    if (!born_right) TRY(give(to.get()));
    if (needs_mode && ::fchmod(to.get(), mode) != 0) return Error::from_errno("chmod");
    return set_times(to.get(), st);
  }

  Status link(const Ends& ends, const std::string& name) const {
    TRY_ASSIGN(const std::string text, os::read_link_in(ends.from.get(), name));
    if (::symlinkat(text.c_str(), ends.to.get(), name.c_str()) != 0) {
      return Error::from_errno("symlink");
    }
    if (owner_.uid.has_value() &&
        ::fchownat(ends.to.get(), name.c_str(), *owner_.uid,
                   owner_.gid.value_or(static_cast<gid_t>(-1)), AT_SYMLINK_NOFOLLOW) != 0) {
      return Error::from_errno("chown");
    }
    return {};
  }

  Status content(int from, int to, std::uint64_t size, Buffer& buffer) {
    if (reflinks_.load(std::memory_order_relaxed)) {
      if (os::clone_file(from, to).ok()) return {};
      reflinks_.store(false, std::memory_order_relaxed);
    }
    std::uint64_t total = 0;
    while (true) {
      const ssize_t got = ::read(from, buffer.data(), buffer.size());
      if (got == 0) return {};
      if (got < 0) {
        if (errno == EINTR) continue;
        return Error::from_errno("read");
      }
      const auto bytes = static_cast<std::size_t>(got);
      TRY(os::write_all(to, {buffer.data(), bytes}));
      total += bytes;
      if (bytes < buffer.size() && total >= size) return {};
    }
  }

  Status finish(const Directory& directory) const {
    TRY_ASSIGN(const os::UniqueFd to,
               os::open_in_tree(to_, directory.path, O_RDONLY | O_DIRECTORY));
    if (!directory.born_right) TRY(give(to.get()));
    const std::uint32_t mode = directory.st.st_mode & ~owner_.umask & 01777U;
    if (::fchmod(to.get(), mode) != 0) return Error::from_errno("chmod");
    return set_times(to.get(), directory.st);
  }

  // Whether what is made in this new directory has the owner that it shall have, and its mode as it
  // is asked for: no set-group-id, and no list (acl(5)) that would come in.
  Result<bool> gives_what_is_wanted(int directory) const {
    struct stat st {};
    if (::fstat(directory, &st) != 0) return Error::from_errno("stat");
    const bool lists = ::fgetxattr(directory, "system.posix_acl_default", nullptr, 0) > 0;
    return !lists && (st.st_mode & S_ISGID) == 0 && st.st_uid == owner_.uid.value_or(st.st_uid) &&
           st.st_gid == owner_.gid.value_or(st.st_gid);
  }

  Status give(int fd) const {
    if (!owner_.uid.has_value() && !owner_.gid.has_value()) return {};
    const auto uid = owner_.uid.value_or(static_cast<uid_t>(-1));
    const auto gid = owner_.gid.value_or(static_cast<gid_t>(-1));
    if (::fchown(fd, uid, gid) != 0 && owner_.uid.has_value()) return Error::from_errno("chown");
    return {};
  }

  int from_;
  int to_;
  const TreeOwner& owner_;
  const Copied& copied_;
  std::atomic<bool> reflinks_{true};
  std::vector<Directory> directories_;  // parents before their children
  std::vector<Piece> pieces_;
};

}  // namespace

Status copy_tree(int upper, const std::string& path, int to, const std::string& name,
                 const TreeOwner& owner, const Copied& copied) {
  TRY_ASSIGN(const os::UniqueFd top, os::open_in_tree(upper, path, O_RDONLY | O_DIRECTORY));
  if (::mkdirat(to, name.c_str(), 0700) != 0) return Error::from_errno("mkdir");
  TRY_ASSIGN(const os::UniqueFd made, os::open_in_tree(to, name, O_RDONLY | O_DIRECTORY));
  return Copier(top.get(), made.get(), owner, copied).copy();
}

}  // namespace cofferdam::orchestrator::changes
