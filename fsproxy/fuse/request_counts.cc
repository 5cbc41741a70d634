#include "fsproxy/fuse/request_counts.h"

#include <linux/fuse.h>

#include <cstring>
#include <string>

namespace cofferdam::fsproxy {
namespace {

struct Name {
  std::uint32_t operation;
  const char* name;
};

constexpr Name kNames[] = {
    {FUSE_LOOKUP, "lookup"},
    {FUSE_FORGET, "forget"},
    {FUSE_GETATTR, "getattr"},
    {FUSE_SETATTR, "setattr"},
    {FUSE_READLINK, "readlink"},
    {FUSE_SYMLINK, "symlink"},
    {FUSE_MKNOD, "mknod"},
    {FUSE_MKDIR, "mkdir"},
    {FUSE_UNLINK, "unlink"},
    {FUSE_RMDIR, "rmdir"},
    {FUSE_RENAME, "rename"},
    {FUSE_LINK, "link"},
    {FUSE_OPEN, "open"},
    {FUSE_READ, "read"},
    {FUSE_WRITE, "write"},
    {FUSE_STATFS, "statfs"},
    {FUSE_RELEASE, "release"},
    {FUSE_FSYNC, "fsync"},
    {FUSE_SETXATTR, "setxattr"},
    {FUSE_GETXATTR, "getxattr"},
    {FUSE_LISTXATTR, "listxattr"},
    {FUSE_REMOVEXATTR, "removexattr"},
    {FUSE_FLUSH, "flush"},
    {FUSE_INIT, "init"},
    {FUSE_OPENDIR, "opendir"},
    {FUSE_READDIR, "readdir"},
    {FUSE_RELEASEDIR, "releasedir"},
    {FUSE_FSYNCDIR, "fsyncdir"},
    {FUSE_ACCESS, "access"},
    {FUSE_CREATE, "create"},
    {FUSE_INTERRUPT, "interrupt"},
    {FUSE_IOCTL, "ioctl"},
    {FUSE_BATCH_FORGET, "forgets"},
    {FUSE_FALLOCATE, "fallocate"},
    {FUSE_READDIRPLUS, "readdirplus"},
    {FUSE_RENAME2, "rename2"},
    {FUSE_LSEEK, "lseek"},
    {FUSE_COPY_FILE_RANGE, "copy_file_range"},
};

std::string name_of(std::size_t operation) {
  for (const Name& one : kNames) {
    if (one.operation == operation) return one.name;
  }
  return std::to_string(operation);
}

}  // namespace

void RequestCounts::count(const void* request, std::size_t size) {
  all_.fetch_add(1, std::memory_order_relaxed);
  struct fuse_in_header header {};
  if (size < sizeof header) return;
  std::memcpy(&header, request, sizeof header);
  const std::size_t kind = header.opcode < kKinds ? header.opcode : 0;
  kinds_[kind].fetch_add(1, std::memory_order_relaxed);
}

Json RequestCounts::by_operation() const {
  Json out = Json::object();
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    const std::uint64_t number = kinds_[kind].load(std::memory_order_relaxed);
    if (number > 0) out[name_of(kind)] = number;
  }
  return out;
}

}  // namespace cofferdam::fsproxy
