// Extended attributes: user.* of files and directories, as ext4 has them. Others are not supported,
// our own marks do not exist for the workload.
#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>

#include "common/layer/user_attributes.h"
#include "common/os/beneath.h"
#include "fsproxy/overlay/overlay.h"
#include "fsproxy/overlay/widened.h"

namespace cofferdam::overlay {
namespace {

constexpr std::string_view kUser = "user.";
constexpr std::uint64_t kBlock = 4096;
// ext4 has one block for all attributes of an object; elsewhere nobody is to store more either,
// for not every file system counts them.
constexpr std::size_t kMostBytes = kBlock;
constexpr std::size_t kEntryBytes = 16;

std::uint64_t blocks_of(int fd) {
  struct stat st {};
  return ::fstat(fd, &st) == 0 ? static_cast<std::uint64_t>(st.st_blocks) : 0;
}

}  // namespace

// For reading attributes, or for changing those of an object of upper: what the descriptor was
// opened for does not matter to either.
Result<os::UniqueFd> Overlay::open_for_attributes(Node& node, bool changes) {
  if (!node.is_regular() && !node.is_dir()) return Error::from_errno("xattr", EPERM);
  if (!attached(node)) {
    for (const OpenFile* file : node.files) {
      if (changes && file->lower) continue;
      os::UniqueFd fd(::fcntl(file->fd.get(), F_DUPFD_CLOEXEC, 3));
      if (fd) return fd;
    }
    return Error::from_errno("xattr", ESTALE);
  }
  if (changes && !node.upper) return Error::from_errno("xattr", EROFS);
  if (node.is_dir()) {
    if (!node.upper) {
      TRY_ASSIGN(const DirRef path, below_dir(node, node.frozen));
      return os::open_beneath(path->get(), ".", O_RDONLY | O_DIRECTORY);
    }
    if (node.id == kRootId) return open_upper_directory(node);
    const NodeName at = node.names.front();
    TRY_ASSIGN(const DirRef parent, dirs_->upper(*at.parent));
    const Widened readable(parent->get(), at.name, 0500, privileged_);
    return os::open_beneath(parent->get(), at.name, O_RDONLY | O_DIRECTORY);
  }
  const NodeName at = node.names.front();
  if (!node.own()) {
    TRY_ASSIGN(const DirRef dir, dirs_->lower(*at.parent));
    TRY_ASSIGN(LowerFile lower, open_lower(dir->get(), at.name, node.origin, LowerKind::kLook));
    return std::move(lower.fd);
  }
  TRY_ASSIGN(const DirRef dir, own_dir(node));
  constexpr int kFlags = O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  os::UniqueFd fd(::openat(dir->get(), at.name.c_str(), O_RDONLY | kFlags));
  if (!fd) fd.reset(::openat(dir->get(), at.name.c_str(), O_WRONLY | kFlags));
  if (!fd) return Error::from_errno("xattr");
  return fd;
}

// Before it is changed by its descriptor.
Status Overlay::make_own(Node& node) {
  if (attached(node)) return copy_up(node);
  return node.frozen != 0 && !node.files.empty() ? copy_without_name(node) : Status();
}

Result<std::string> Overlay::attribute(NodeId id, const std::string& name) {
  Node* node = nodes_.find(id);
  if (node == nullptr) return Error::from_errno("getxattr", ESTALE);
  if (layer::is_reserved_attribute(name)) return Error::from_errno("getxattr", ENODATA);
  if (!name.starts_with(kUser)) return Error::from_errno("getxattr", EOPNOTSUPP);
  if (!node->is_regular() && !node->is_dir()) return Error::from_errno("getxattr", ENODATA);
  TRY_ASSIGN(const os::UniqueFd fd, open_for_attributes(*node, false));
  return layer::attribute_value(fd.get(), name);
}

Result<std::vector<std::string>> Overlay::attribute_names(NodeId id) {
  Node* node = nodes_.find(id);
  if (node == nullptr) return Error::from_errno("listxattr", ESTALE);
  if (!node->is_regular() && !node->is_dir()) return std::vector<std::string>();
  TRY_ASSIGN(const os::UniqueFd fd, open_for_attributes(*node, false));
  return layer::user_attributes(fd.get());
}

Status Overlay::may_change_attribute(const std::string& name) const {
  TRY(writable());
  if (layer::is_reserved_attribute(name)) return Error::from_errno("setxattr", EPERM);
  if (!name.starts_with(kUser)) return Error::from_errno("setxattr", EOPNOTSUPP);
  if (name.size() == kUser.size()) return Error::from_errno("setxattr", EINVAL);
  return {};
}

Status Overlay::set_attribute(NodeId id, const std::string& name, std::string_view value,
                              int flags) {
  TRY(may_change_attribute(name));
  Node* node = nodes_.find(id);
  if (node == nullptr) return Error::from_errno("setxattr", ESTALE);
  const Pin keep(nodes_, *node);
  TRY(make_own(*node));
  TRY_ASSIGN(const os::UniqueFd fd, open_for_attributes(*node, true));
  std::size_t bytes = kEntryBytes + name.size() + value.size();
  TRY_ASSIGN(const std::vector<std::string> others, layer::user_attributes(fd.get()));
  for (const std::string& other : others) {
    if (other == name) continue;
    const ssize_t size = ::fgetxattr(fd.get(), other.c_str(), nullptr, 0);
    bytes += kEntryBytes + other.size() + static_cast<std::size_t>(std::max<ssize_t>(size, 0));
  }
  if (bytes > kMostBytes) return Error::from_errno("setxattr", ENOSPC);
  TRY(reserve("setxattr", attached(*node) ? nodes_.path(*node) : std::string(), kBlock, 0));
  const std::uint64_t before = blocks_of(fd.get());
  const int result = ::fsetxattr(fd.get(), name.c_str(), value.data(), value.size(), flags);
  const int failure = errno;
  charge_attributes(*node, fd.get(), before, kBlock);
  if (result != 0) return Error::from_errno("setxattr", failure);
  return {};
}

Status Overlay::remove_attribute(NodeId id, const std::string& name) {
  TRY(may_change_attribute(name));
  Node* node = nodes_.find(id);
  if (node == nullptr) return Error::from_errno("removexattr", ESTALE);
  const Pin keep(nodes_, *node);
  // What is not there is no reason for a copy.
  TRY(attribute(id, name));
  TRY(make_own(*node));
  TRY_ASSIGN(const os::UniqueFd fd, open_for_attributes(*node, true));
  const std::uint64_t before = blocks_of(fd.get());
  const int result = ::fremovexattr(fd.get(), name.c_str());
  const int failure = errno;
  charge_attributes(*node, fd.get(), before, 0);
  if (result != 0) return Error::from_errno("removexattr", failure);
  return {};
}

void Overlay::charge_attributes(Node& node, int fd, std::uint64_t before, std::uint64_t reserved) {
  const auto change = static_cast<std::int64_t>(blocks_of(fd)) - static_cast<std::int64_t>(before);
  node.blocks += change;
  ledger_.settle(reserved, change * 512);
}

// To an object that is staged, before it gets its mode.
Status Overlay::copy_attributes(const Node& node, int lower_dir, const std::string& name,
                                const std::string& staged) {
  if (!options_.extended || (!node.is_regular() && !node.is_dir())) return {};
  if (node.frozen != 0) {
    TRY_ASSIGN(const os::UniqueFd from,
               os::open_beneath(lower_dir, name, O_RDONLY | O_NONBLOCK | O_NOCTTY));
    return copy_attributes_from(from.get(), staged);
  }
  TRY_ASSIGN(const LowerFile from, open_lower(lower_dir, name, node.origin, LowerKind::kKnown));
  return copy_attributes_from(from.fd.get(), staged);
}

Status Overlay::copy_attributes_from(int from, const std::string& staged) {
  if (!options_.extended) return {};
  TRY_ASSIGN(const std::vector<std::string> names, layer::user_attributes(from));
  if (names.empty()) return {};
  const os::UniqueFd to(
      ::openat(work_.get(), staged.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!to) return Error::from_errno("copy up: xattr");
  for (const std::string& one : names) {
    auto value = layer::attribute_value(from, one);
    if (!value.ok() && value.error().error_number() == ENODATA) continue;
    if (!value.ok()) return value.error();
    if (::fsetxattr(to.get(), one.c_str(), value->data(), value->size(), 0) != 0) {
      return Error::from_errno("copy up: xattr");
    }
  }
  return {};
}

}  // namespace cofferdam::overlay
