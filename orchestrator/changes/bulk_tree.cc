#include "orchestrator/changes/bulk_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <limits>
#include <set>
#include <vector>

#include "common/os/beneath.h"
#include "common/os/files.h"
#include "common/os/tree_paths.h"
#include "orchestrator/changes/bare_repository.h"
#include "orchestrator/changes/forbidden_names.h"
#include "orchestrator/changes/layer_view.h"
#include "orchestrator/changes/upper_walk.h"

namespace cofferdam::orchestrator::changes {
namespace {

using layer::Kind;

constexpr std::uint32_t kSetIdBits = 06000;

std::string joined(const std::string& directory, std::string_view name) {
  return directory.empty() ? std::string(name) : directory + "/" + std::string(name);
}

class Looker final {
 public:
  Looker(const RiskTable& risks, const IsHidden& is_hidden)
      : risks_(risks), is_hidden_(is_hidden) {}

  // False: no bulk tree.
  Result<bool> enter(int directory, const std::string& path) {
    std::vector<std::string> below;
    std::set<std::string> names;
    bool plain = true;
    TRY(os::for_each_name(directory, [&](std::string_view name) -> Status {
      if (!plain) return {};
      TRY_ASSIGN(plain, take(directory, path, std::string(name), below));
      names.emplace(name);
      return {};
    }));
    if (!plain || is_repository_listing(names)) return false;
    for (const std::string& name : below) {
      const auto child = os::open_in_tree(directory, name, O_RDONLY | O_DIRECTORY);
      if (!child.ok()) return false;
      TRY_ASSIGN(const bool inner, enter(child->get(), joined(path, name)));
      if (!inner) return false;
    }
    return true;
  }

  BulkTree tree;

 private:
  Result<bool> take(int directory, const std::string& path, const std::string& name,
                    std::vector<std::string>& below) {
    const std::string full = joined(path, name);
    // The depth is bounded by this too.
    if (full.size() > os::kMaxTreePath || is_dot_git(name)) return false;
    TRY_ASSIGN(const struct stat st, os::stat_in(directory, name));
    const Kind kind = kind_of_mode(st.st_mode);
    if (kind == Kind::kOther || is_hidden_(full, kind == Kind::kDirectory)) return false;
    if (kind == Kind::kFile && (st.st_mode & kSetIdBits) != 0) return false;
    // One that cannot be copied is left out by itself, not with all that lies beside it.
    const bool surely_readable = (st.st_mode & S_IRUSR) != 0 && st.st_uid == ::geteuid();
    if (kind == Kind::kFile && !surely_readable &&
        ::faccessat(directory, name.c_str(), R_OK, AT_EACCESS | AT_SYMLINK_NOFOLLOW) != 0) {
      return false;
    }
    ++tree.entries;
    Change change;
    change.path = full;
    change.kind = ChangeKind::kAdded;
    change.theirs.kind = kind;
    change.theirs.mode = st.st_mode & 07777U;
    std::string link;
    if (kind == Kind::kSymlink) {
      TRY_ASSIGN(link, os::read_link_in(directory, name));
    } else if (kind == Kind::kFile) {
      tree.bytes += static_cast<std::uint64_t>(st.st_size);
      const std::uint64_t holes = holes_of(st);
      if (holes > std::numeric_limits<std::uint64_t>::max() - tree.holes) return false;
      tree.holes += holes;
    } else {
      below.push_back(name);
    }
    const Risk risk = risks_.assess(change, link);
    if (risk.level > tree.risk.level) {
      tree.risk = risk;
      tree.risky_path = full;
      tree.risky = 0;
    }
    if (risk.level == tree.risk.level) ++tree.risky;
    return true;
  }

  const RiskTable& risks_;
  const IsHidden& is_hidden_;
};

class Copier final {
 public:
  explicit Copier(const TreeOwner& owner) : owner_(owner) {}

  Status directory(int from, int to_parent, const std::string& name, std::uint32_t mode) {
    if (::mkdirat(to_parent, name.c_str(), 0700) != 0) return Error::from_errno("mkdir");
    TRY_ASSIGN(const os::UniqueFd to, os::open_in_tree(to_parent, name, O_RDONLY | O_DIRECTORY));
    const bool before = born_right_;
    TRY_ASSIGN(born_right_, gives_what_is_wanted(to.get()));
    std::vector<std::string> names;
    TRY(os::for_each_name(from, [&](std::string_view child) -> Status {
      names.emplace_back(child);
      return {};
    }));
    for (const std::string& child : names) TRY(entry(from, to.get(), child));
    if (!born_right_) TRY(give(to.get()));
    born_right_ = before;
    if (::fchmod(to.get(), mode & ~owner_.umask & 01777U) != 0) return Error::from_errno("chmod");
    struct stat st {};
    if (::fstat(from, &st) != 0) return Error::from_errno("stat");
    return set_times(to.get(), st);
  }

 private:
  Status entry(int from, int to, const std::string& name) {
    TRY_ASSIGN(const struct stat st, os::stat_in(from, name));
    if (S_ISLNK(st.st_mode)) {
      TRY_ASSIGN(const std::string text, os::read_link_in(from, name));
      if (::symlinkat(text.c_str(), to, name.c_str()) != 0) return Error::from_errno("symlink");
      if (owner_.uid.has_value() &&
          ::fchownat(to, name.c_str(), *owner_.uid, owner_.gid.value_or(static_cast<gid_t>(-1)),
                     AT_SYMLINK_NOFOLLOW) != 0) {
        return Error::from_errno("chown");
      }
      return {};
    }
    const bool is_directory = S_ISDIR(st.st_mode);
    const os::UniqueFd source(::openat(
        from, name.c_str(),
        O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | (is_directory ? O_DIRECTORY : 0)));
    if (!source) return Error::from_errno("open " + name);
    if (is_directory) return directory(source.get(), to, name, st.st_mode);
    return file(source.get(), to, name, st);
  }

  Status file(int from, int to_directory, const std::string& name, const struct stat& st) {
    struct stat opened {};
    if (::fstat(from, &opened) != 0) return Error::from_errno("stat");
    if (!S_ISREG(opened.st_mode) || (opened.st_mode & kSetIdBits) != 0) {
      return Error("the sandbox's version changed while it was read");
    }
    const std::uint32_t mode = opened.st_mode & ~owner_.umask & 01777U;
    // Each change of an inode costs as much as its making. The directory is nobody else's yet, so
    // that a file may have its mode from the beginning.
    const bool needs_mode = (mode & ~0777U) != 0 || !born_right_;
    const os::UniqueFd to(::openat(to_directory, name.c_str(),
                                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                                   needs_mode ? 0600U : mode));
    if (!to) return Error::from_errno("create");
    TRY(content(from, to.get()));
    if (!born_right_) TRY(give(to.get()));
    if (needs_mode && ::fchmod(to.get(), mode) != 0) return Error::from_errno("chmod");
    return set_times(to.get(), st);
  }

  Status content(int from, int to) {
    if (reflinks_) {
      if (os::clone_file(from, to).ok()) return {};
      reflinks_ = false;
    }
    while (true) {
      const ssize_t got = ::read(from, buffer_.data(), buffer_.size());
      if (got == 0) return {};
      if (got < 0) {
        if (errno == EINTR) continue;
        return Error::from_errno("read");
      }
      TRY(os::write_all(to, {buffer_.data(), static_cast<std::size_t>(got)}));
    }
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

  static Status set_times(int fd, const struct stat& st) {
    const std::array<struct timespec, 2> times = {st.st_atim, st.st_mtim};
    if (::futimens(fd, times.data()) != 0) return Error::from_errno("utimens");
    return {};
  }

  const TreeOwner& owner_;
  bool reflinks_ = true;
  bool born_right_ = false;  // what is made where the copy is just now
  std::array<char, 262144> buffer_{};
};

}  // namespace

Result<std::optional<BulkTree>> look_through(int upper, const std::string& path,
                                             const RiskTable& risks, const IsHidden& is_hidden) {
  const auto top = os::open_in_tree(upper, path, O_RDONLY | O_DIRECTORY);
  if (!top.ok()) return std::optional<BulkTree>();
  Looker looker(risks, is_hidden);
  ++looker.tree.entries;
  TRY_ASSIGN(const bool plain, looker.enter(top->get(), path));
  if (!plain) return std::optional<BulkTree>();
  return std::optional<BulkTree>(std::move(looker.tree));
}

Status copy_tree(int upper, const std::string& path, int to, const std::string& name,
                 const TreeOwner& owner) {
  TRY_ASSIGN(const os::UniqueFd top, os::open_in_tree(upper, path, O_RDONLY | O_DIRECTORY));
  struct stat st {};
  if (::fstat(top.get(), &st) != 0) return Error::from_errno("stat");
  Copier copier(owner);
  return copier.directory(top.get(), to, name, st.st_mode);
}

}  // namespace cofferdam::orchestrator::changes
