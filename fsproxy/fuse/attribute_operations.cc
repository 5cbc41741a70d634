// Extended attributes, where the sandbox asked for them. Elsewhere the kernel is told once that
// there are none, and then asks no more.
#include <algorithm>

#include "fsproxy/fuse/operations.h"

namespace cofferdam::fsproxy {
namespace {

// With a size of 0 the question is how much there is.
void reply_bytes(fuse_req_t req, const std::string& bytes, std::size_t size) {
  if (size == 0) {
    fuse_reply_xattr(req, bytes.size());
  } else if (bytes.size() > size) {
    fuse_reply_err(req, ERANGE);
  } else {
    fuse_reply_buf(req, bytes.data(), bytes.size());
  }
}

void do_getxattr(fuse_req_t req, fuse_ino_t ino, const char* name, std::size_t size) {
  const auto value = state_of(req).view.attribute(ino, name);
  if (!value.ok()) return reply_error(req, value.error());
  reply_bytes(req, *value, size);
}

void do_listxattr(fuse_req_t req, fuse_ino_t ino, std::size_t size) {
  const auto names = state_of(req).view.attribute_names(ino);
  if (!names.ok()) return reply_error(req, names.error());
  std::string bytes;
  for (const std::string& name : *names) bytes.append(name.c_str(), name.size() + 1);
  reply_bytes(req, bytes, size);
}

// The long part of a copy-up is not done here; nor is it begun for what is going to be refused.
void change_later(fuse_req_t req, fuse_ino_t ino, const std::function<void(fuse_req_t)>& again) {
  MountState& mount = state_of(req);
  if (Status allowed = check_node(mount, "setxattr", ino); !allowed.ok()) {
    return reply_error(req, allowed.error());
  }
  if (!mount.copies.defer(req, ino, again)) again(req);
}

void do_setxattr(fuse_req_t req, fuse_ino_t ino, const char* name, const char* value,
                 std::size_t size, int flags) {
  MountState& mount = state_of(req);
  if (Status allowed = mount.view.may_change_attribute(name); !allowed.ok()) {
    return reply_error(req, allowed.error());
  }
  change_later(
      req, ino,
      [ino, flags, name = std::string(name), value = std::string(value, size)](fuse_req_t later) {
        reply_status(later, state_of(later).view.set_attribute(ino, name, value, flags));
      });
}

void do_removexattr(fuse_req_t req, fuse_ino_t ino, const char* name) {
  MountState& mount = state_of(req);
  Status allowed = mount.view.may_change_attribute(name);
  // What is not there is no reason for a copy.
  if (allowed.ok()) {
    if (const auto value = mount.view.attribute(ino, name); !value.ok()) allowed = value.error();
  }
  if (!allowed.ok()) return reply_error(req, allowed.error());
  change_later(req, ino, [ino, name = std::string(name)](fuse_req_t later) {
    reply_status(later, state_of(later).view.remove_attribute(ino, name));
  });
}

}  // namespace

void add_attribute_operations(struct fuse_lowlevel_ops& ops) {
  ops.getxattr = do_getxattr;
  ops.listxattr = do_listxattr;
  ops.setxattr = do_setxattr;
  ops.removexattr = do_removexattr;
}

}  // namespace cofferdam::fsproxy
