#include "fsproxy/fuse/passthrough.h"

#include <spdlog/spdlog.h>

namespace cofferdam::fsproxy {

bool Passthrough::needs_new_node(overlay::NodeId node, bool writes) const {
  if (!writes) return false;
  const auto found = inodes_.find(node);
  return found != inodes_.end() && found->second.passthrough > 0 && found->second.of_lower;
}

bool Passthrough::has_writers(overlay::NodeId node) const {
  const auto found = inodes_.find(node);
  return found != inodes_.end() && found->second.writers > 0;
}

bool Passthrough::is_live(overlay::NodeId node) const {
  const auto found = inodes_.find(node);
  return found != inodes_.end() && found->second.passthrough > 0;
}

Passthrough::Way Passthrough::acquire(const overlay::OpenFile& file, bool fresh, bool may_write) {
  if (!allowed_ && inodes_.empty()) return {};
  Inode& inode = inodes_[file.node->id];
  const bool enough = !file.writable || may_write;
  const auto use = [&]() -> Way {
    ++inode.passthrough;
    ++opens_;
    if (file.writable) {
      ++inode.writers;
      inode.stale_pages = true;
    }
    return {true, inode.backing_id, false};
  };
  if (inode.passthrough > 0) return use();
  const bool worth = fresh ? file.writable : file.node->last.st_size >= kLeastBytes;
  if (allowed_ && inode.cached == 0 && enough && worth) {
    const auto id = helper_->add(mount_, file.fd.get());
    if (id.ok()) {
      inode.backing_id = *id;
      inode.of_lower = file.lower;
      return use();
    }
    const int number = id.error().error_number();
    if (number == EPERM || number == EPIPE || number == EOPNOTSUPP) {
      spdlog::warn("passthrough is off: {}", id.error().message());
      allowed_ = false;
      // Opens that are live stay what they are.
      helper_ = nullptr;
    }
  }
  ++inode.cached;
  const bool drop = inode.stale_pages;
  inode.stale_pages = false;
  return {false, 0, drop};
}

void Passthrough::release(const overlay::OpenFile& file, bool passthrough) {
  const auto found = inodes_.find(file.node->id);
  if (found == inodes_.end()) return;
  Inode& inode = found->second;
  if (passthrough) {
    --inode.passthrough;
    if (file.writable) --inode.writers;
    if (inode.passthrough == 0) {
      unused_.push_back(inode.backing_id);
      if (unused_.size() >= BackingHelper::kMostAtOnce) flush();
      inode.backing_id = 0;
    }
  } else if (inode.cached > 0) {
    --inode.cached;
  }
  if (inode.passthrough == 0 && inode.cached == 0 && !inode.stale_pages) inodes_.erase(found);
}

void Passthrough::freeze(const std::function<bool(overlay::NodeId)>& stays) {
  for (auto& [node, inode] : inodes_) {
    if (inode.passthrough > 0 && !stays(node)) inode.of_lower = true;
  }
}

void Passthrough::flush() {
  if (helper_ != nullptr && !unused_.empty()) helper_->remove(mount_, unused_);
  unused_.clear();
}

void Passthrough::forget(overlay::NodeId node) {
  const auto found = inodes_.find(node);
  if (found != inodes_.end() && found->second.passthrough == 0 && found->second.cached == 0)
    inodes_.erase(found);
}

}  // namespace cofferdam::fsproxy
