#include "orchestrator/changes/staging.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <vector>

#include "common/os/files.h"
#include "common/os/tree_paths.h"

namespace cofferdam::orchestrator::changes {
namespace {

Result<std::string> random_name() {
  std::array<unsigned char, 8> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return Error::from_errno("getrandom");
  }
  std::string name(Staging::kPrefix);
  for (const unsigned char byte : bytes) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", byte);
    name += digits.data();
  }
  return name;
}

// Only root may choose; a group that the caller is in may be given too, else it stays as it is.
Status give(int fd, Owner owner) {
  if (::geteuid() == 0) {
    if (::fchown(fd, owner.uid, owner.gid) != 0) return Error::from_errno("chown");
    return {};
  }
  (void)!::fchown(fd, static_cast<uid_t>(-1), owner.gid);
  return {};
}

}  // namespace

Result<Staging> Staging::create(int workspace) {
  std::string leftover;
  TRY(os::for_each_name(workspace, [&](std::string_view name) -> Status {
    if (name.starts_with(kPrefix)) leftover = name;
    return {};
  }));
  if (!leftover.empty()) {
    return Error("another merge into this workspace runs, or was killed: if none runs, look into " +
                 leftover + " for what it had moved aside, put back what you need, and remove it");
  }
  TRY_ASSIGN(const std::string name, random_name());
  if (::mkdirat(workspace, name.c_str(), 0700) != 0) {
    return Error::from_errno("create a directory in the workspace");
  }
  auto fd = os::open_in_tree(workspace, name, O_RDONLY | O_DIRECTORY);
  if (!fd.ok()) {
    ::unlinkat(workspace, name.c_str(), AT_REMOVEDIR);
    return fd.error();
  }
  return Staging(std::move(fd).value(), name);
}

Status Staging::make_file(const LayerView& view, const std::string& name, const Change& change,
                          Owner owner) {
  const os::UniqueFd fd(::openat(fd_.get(), name.c_str(),
                                 O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return Error::from_errno("create");
  Sha256 hash;
  TRY(view.read_theirs(change.path, [&](std::string_view bytes) -> Status {
    hash.update(bytes);
    return os::write_all(fd.get(), bytes);
  }));
  if (hash.finish() != change.theirs.sha256) {
    return Error("the sandbox's version changed while it was read");
  }
  TRY(give(fd.get(), owner));
  // After the owner: chown takes set-id bits away.
  if (::fchmod(fd.get(), change.theirs.mode) != 0) return Error::from_errno("chmod");
  // The whole file system is synced once, before the first act that anybody sees.
  return {};
}

Status Staging::make(const LayerView& view, const std::string& name, const Change& change,
                     Owner owner) {
  switch (change.theirs.kind) {
    case layer::Kind::kFile:
      return make_file(view, name, change, owner);
    case layer::Kind::kSymlink: {
      std::string text;
      TRY(view.read_theirs(change.path, [&](std::string_view bytes) -> Status {
        text += bytes;
        return {};
      }));
      if (sha256(text) != change.theirs.sha256) {
        return Error("the sandbox's version changed while it was read");
      }
      if (::symlinkat(text.c_str(), fd_.get(), name.c_str()) != 0)
        return Error::from_errno("symlink");
      if (::geteuid() == 0 &&
          ::fchownat(fd_.get(), name.c_str(), owner.uid, owner.gid, AT_SYMLINK_NOFOLLOW) != 0) {
        return Error::from_errno("chown");
      }
      return {};
    }
    case layer::Kind::kDirectory: {
      if (::mkdirat(fd_.get(), name.c_str(), 0700) != 0) return Error::from_errno("mkdir");
      TRY_ASSIGN(const os::UniqueFd fd, os::open_in_tree(fd_.get(), name, O_RDONLY | O_DIRECTORY));
      return give(fd.get(), owner);
    }
    case layer::Kind::kAbsent:
    case layer::Kind::kOther:
      break;
  }
  return Error("nothing that can be made");
}

Status Staging::remove(int workspace) {
  std::vector<std::string> names;
  TRY(os::for_each_name(fd_.get(), [&](std::string_view name) -> Status {
    names.emplace_back(name);
    return {};
  }));
  for (const std::string& name : names) {
    if (::unlinkat(fd_.get(), name.c_str(), 0) == 0) continue;
    if (errno != EISDIR && errno != EPERM) return Error::from_errno("remove " + name_);
    if (::unlinkat(fd_.get(), name.c_str(), AT_REMOVEDIR) != 0) {
      return Error::from_errno("remove " + name_);
    }
  }
  if (::unlinkat(workspace, name_.c_str(), AT_REMOVEDIR) != 0) {
    return Error::from_errno("remove " + name_);
  }
  return {};
}

}  // namespace cofferdam::orchestrator::changes
