// Open files: reading, writing, and what it costs.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "fsproxy/overlay/overlay.h"

namespace cofferdam::overlay {
namespace {

constexpr std::uint64_t kBlock = 4096;

std::uint64_t blocks_spanned(off_t offset, std::uint64_t length) {
  const std::uint64_t begin = static_cast<std::uint64_t>(offset) / kBlock * kBlock;
  const std::uint64_t end = static_cast<std::uint64_t>(offset) + length;
  return (end - begin + kBlock - 1) / kBlock * kBlock;
}

}  // namespace

Result<OpenFile*> Overlay::add_file(Node& node, os::UniqueFd fd, bool lower, bool writable) {
  if (!lower && node.files.empty()) {
    struct stat st {};
    if (::fstat(fd.get(), &st) != 0) return Error::from_errno("open: stat");
    node.blocks = st.st_blocks;
  }
  return keep_file(node, std::move(fd), lower, writable);
}

OpenFile* Overlay::keep_file(Node& node, os::UniqueFd fd, bool lower, bool writable) {
  auto owned = std::make_unique<OpenFile>();
  OpenFile* file = owned.get();
  file->node = &node;
  file->fd = std::move(fd);
  file->lower = lower;
  file->writable = writable;
  node.files.push_back(file);
  files_.emplace(file, std::move(owned));
  return file;
}

// A descriptor of an open handle that fits the access mode, duplicated.
os::UniqueFd Overlay::shared_fd(Node& node, int access) {
  for (const OpenFile* file : node.files) {
    const int have = ::fcntl(file->fd.get(), F_GETFL) & O_ACCMODE;
    if (have == access || have == O_RDWR) {
      return os::UniqueFd(::fcntl(file->fd.get(), F_DUPFD_CLOEXEC, 3));
    }
  }
  return {};
}

Result<Overlay::Opened> Overlay::open_file(NodeId id, int flags) {
  Node* node = nodes_.find(id);
  if (node == nullptr) return Error::from_errno("open", ESTALE);
  if (node->is_dir()) return Error::from_errno("open", EISDIR);
  if (!node->is_regular()) return Error::from_errno("open", ENXIO);
  if (files_.size() >= options_.max_open) return Error::from_errno("open", ENFILE);
  const bool truncates = (flags & O_TRUNC) != 0;
  // Who opens a file for reading may cut it, too.
  const int asked = flags & O_ACCMODE;
  const int access = truncates && asked == O_RDONLY ? O_RDWR : asked;
  const bool writes = access != O_RDONLY || truncates;
  if (!attached(*node)) {
    // Reached through /proc/<pid>/fd of somebody who has it open.
    os::UniqueFd fd = shared_fd(*node, access);
    if (!fd || (truncates && !node->own())) return Error::from_errno("open", ESTALE);
    if (truncates && node->frozen != 0) {
      TRY(copy_without_name(*node));
      fd = shared_fd(*node, access);
      if (!fd) return Error::from_errno("open", ESTALE);
    }
    if (truncates) TRY(truncate_fd(*node, fd.get(), 0));
    TRY_ASSIGN(OpenFile * file, add_file(*node, std::move(fd), !node->upper, writes));
    return Opened{file, true};
  }
  const Pin keep(nodes_, *node);
  if (writes) TRY(copy_up(*node, truncates ? Data::kNone : Data::kContent));
  const NodeName at = node->names.front();
  if (node->own()) {
    TRY_ASSIGN(const DirRef dir, own_dir(*node));
    os::UniqueFd fd(::openat(dir->get(), at.name.c_str(),
                             access | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!fd) return Error::from_errno("open");
    TRY_ASSIGN(OpenFile * file, add_file(*node, std::move(fd), !node->upper, writes));
    if (truncates) {
      if (Status cut = truncate_fd(*node, file->fd.get(), 0); !cut.ok()) {
        close(file);
        return cut.error();
      }
    }
    return Opened{file, true};
  }
  TRY_ASSIGN(const DirRef dir, dirs_->lower(*at.parent));
  if (OpenFile* late = keep_late(*node, dir->get(), at.name)) return Opened{late, true};
  const LowerKind kind = at.parent->watched ? LowerKind::kKnown : LowerKind::kLook;
  TRY_ASSIGN(LowerFile lower, open_lower(dir->get(), at.name, node->origin, kind));
  const layer::Version version = version_of(lower.now.st);
  if (!node->read_recorded && records_->active()) {
    records_->note_read(nodes_.path(*node), version);
    node->read_recorded = true;
  }
  const bool same = node->cached && *node->cached == version;
  node->cached = version;
  TRY_ASSIGN(OpenFile * file, add_file(*node, std::move(lower.fd), true, false));
  file->opened = version;
  return Opened{file, same};
}

// Null where the file has to be opened now.
OpenFile* Overlay::keep_late(Node& node, int lower_dir, const std::string& name) {
  if (!node.cached || node.cached->size >= kOpenLateBelow) return nullptr;
  if (records_->active() && !node.read_recorded) return nullptr;
  const auto now = stat_lower(lower_dir, name);
  if (!now.ok() || now->identity != node.origin || version_of(now->st) != *node.cached) {
    return nullptr;
  }
  struct stat st = now->st;
  shape(node, st);
  OpenFile* file = keep_file(node, {}, true, false);
  file->opened = *node.cached;
  late_.insert(file);
  return file;
}

Status Overlay::need_descriptor(OpenFile& file) {
  if (file.fd.valid()) return {};
  Node& node = *file.node;
  if (!attached(node)) return Error::from_errno("open", ESTALE);
  const NodeName& at = node.names.front();
  TRY_ASSIGN(const DirRef dir, dirs_->lower(*at.parent));
  TRY_ASSIGN(LowerFile lower, open_lower(dir->get(), at.name, node.origin, LowerKind::kLook));
  file.fd = std::move(lower.fd);
  late_.erase(&file);
  return {};
}

void Overlay::open_late(Node& node) {
  if (late_.empty()) return;
  for (OpenFile* file : node.files) (void)need_descriptor(*file).ok();
}

void Overlay::open_late() {
  for (OpenFile* file : std::exchange(late_, {})) (void)need_descriptor(*file).ok();
}

void Overlay::clear_set_ids(OpenFile& file) {
  struct stat st {};
  if ((file.node->last.st_mode & 06000U) == 0 || ::fstat(file.fd.get(), &st) != 0) return;
  mode_t mode = st.st_mode & 07777U & ~static_cast<mode_t>(S_ISUID);
  // Without the right to execute, the bit means something else (inode(7)).
  if ((mode & S_IXGRP) != 0) mode &= ~static_cast<mode_t>(S_ISGID);
  (void)::fchmod(file.fd.get(), mode);
}

Result<std::size_t> Overlay::read(OpenFile& file, char* buffer, std::size_t size, off_t offset) {
  TRY(need_descriptor(file));
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got =
        ::pread(file.fd.get(), buffer + done, size - done, offset + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error::from_errno("read");
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

// Reserves what the bytes may cost at most. Over the quota, only what allocates nothing is let
// through.
Result<std::uint64_t> Overlay::reserve_write(OpenFile& file, off_t offset, std::uint64_t length,
                                             std::string_view operation) {
  const std::uint64_t cost = blocks_spanned(offset, length);
  if (ledger_.reserve(cost, 0)) return cost;
  struct stat st {};
  if (::fstat(file.fd.get(), &st) == 0) {
    const bool dense =
        static_cast<std::uint64_t>(st.st_blocks) * 512 >= static_cast<std::uint64_t>(st.st_size);
    if (dense &&
        static_cast<std::uint64_t>(offset) + length <= static_cast<std::uint64_t>(st.st_size)) {
      return std::uint64_t{0};
    }
  }
  observer_.quota_exceeded(operation, nodes_.path(*file.node));
  return Error::from_errno("quota", ENOSPC);
}

// What the file really holds now, against what the ledger has for it.
void Overlay::account(Node& node, int fd, std::uint64_t reserved) {
  struct stat st {};
  std::int64_t real = 0;
  if (::fstat(fd, &st) == 0) {
    real = (static_cast<std::int64_t>(st.st_blocks) - node.blocks) * 512;
    node.blocks = st.st_blocks;
    node.last.st_size = st.st_size;
  }
  ledger_.settle(reserved, real);
}

// A directory grows with the names in it.
void Overlay::charge_directory(Node& dir) {
  if (!dir.upper) return;
  const auto fd = dirs_->upper(dir);
  struct stat st {};
  if (!fd.ok() || ::fstatat((*fd)->get(), "", &st, AT_EMPTY_PATH) != 0) return;
  // The root is there before anything is made: its first block is nobody's.
  const std::int64_t blocks =
      dir.id == kRootId ? std::max<std::int64_t>(st.st_blocks, 8) : st.st_blocks;
  if (blocks == dir.blocks) return;
  ledger_.add((blocks - dir.blocks) * 512, 0);
  dir.blocks = blocks;
}

Result<std::size_t> Overlay::write(OpenFile& file, std::string_view bytes, off_t offset) {
  TRY(thaw(file));
  TRY_ASSIGN(const std::uint64_t reserved, reserve_write(file, offset, bytes.size(), "write"));
  std::size_t done = 0;
  int failure = 0;
  while (done < bytes.size()) {
    const ssize_t put = ::pwrite(file.fd.get(), bytes.data() + done, bytes.size() - done,
                                 offset + static_cast<off_t>(done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) failure = errno;
    if (put <= 0) break;
    done += static_cast<std::size_t>(put);
  }
  account(*file.node, file.fd.get(), reserved);
  if (done == 0 && failure != 0) return Error::from_errno("write", failure);
  return done;
}

Status Overlay::truncate_fd(Node& node, int fd, off_t size) {
  if (::ftruncate(fd, size) != 0) return Error::from_errno("truncate");
  account(node, fd, 0);
  return {};
}

Status Overlay::allocate(OpenFile& file, int mode, off_t offset, off_t length) {
  constexpr int kKnown = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
  if ((mode & ~kKnown) != 0) return Error::from_errno("fallocate", EOPNOTSUPP);
  TRY(thaw(file));
  std::uint64_t reserved = 0;
  if ((mode & FALLOC_FL_PUNCH_HOLE) == 0) {
    TRY_ASSIGN(reserved,
               reserve_write(file, offset, static_cast<std::uint64_t>(length), "fallocate"));
  }
  const int result = ::fallocate(file.fd.get(), mode, offset, length);
  const int failure = errno;
  account(*file.node, file.fd.get(), reserved);
  if (result != 0) return Error::from_errno("fallocate", failure);
  return {};
}

Result<std::size_t> Overlay::copy_range(OpenFile& from, off_t from_offset, OpenFile& to,
                                        off_t to_offset, std::size_t length) {
  TRY(thaw(to));
  TRY(need_descriptor(from));
  TRY_ASSIGN(const std::uint64_t reserved, reserve_write(to, to_offset, length, "copy_file_range"));
  const ssize_t put =
      ::copy_file_range(from.fd.get(), &from_offset, to.fd.get(), &to_offset, length, 0);
  const int failure = errno;
  account(*to.node, to.fd.get(), reserved);
  if (put < 0) return Error::from_errno("copy_file_range", failure);
  return static_cast<std::size_t>(put);
}

Result<off_t> Overlay::seek(OpenFile& file, off_t offset, int whence) {
  if (whence != SEEK_DATA && whence != SEEK_HOLE) return Error::from_errno("lseek", EINVAL);
  TRY(need_descriptor(file));
  const off_t at = ::lseek(file.fd.get(), offset, whence);
  if (at < 0) return Error::from_errno("lseek");
  return at;
}

Status Overlay::sync(OpenFile& file, bool data_only) {
  if (file.lower) return {};
  // A file that survives must not do so without its base.
  if (meta_) TRY(meta_->sync());
  if ((data_only ? ::fdatasync(file.fd.get()) : ::fsync(file.fd.get())) != 0) {
    return Error::from_errno("fsync");
  }
  return {};
}

void Overlay::close(OpenFile* file) {
  Node& node = *file->node;
  struct stat st {};
  const bool last_use = !file->lower && !node.superseded && node.files.size() == 1 &&
                        node.names.empty() && ::fstat(file->fd.get(), &st) == 0 && st.st_nlink == 0;
  if (file->lower && (node.frozen != 0 || !file->fd.valid())) {
    // Nothing of it changes; or nothing of it was looked at.
  } else if (file->lower) {
    const auto now = stat_lower(file->fd.get(), "");
    if (now.ok() && version_of(now->st) != file->opened &&
        version_of(now->st).mtime_ns != file->opened.mtime_ns) {
      observer_.changed_under(nodes_.path(node), node.id);
    }
  } else if (file->writable) {
    account(node, file->fd.get(), 0);
  }
  std::erase(node.files, file);
  late_.erase(file);
  files_.erase(file);
  if (last_use) {
    ledger_.add(-node.blocks * 512, 0);
    node.blocks = 0;
  }
  nodes_.release(&node);
}

}  // namespace cofferdam::overlay
