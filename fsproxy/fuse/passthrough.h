// Passthrough: which opens of one mount go past this service, straight to the backing file.
//
// The kernel's rules (fs/fuse/iomode.c): while an inode has passthrough opens, every other open of
// it must be one too, with the same backing file; while it has cached opens, none can. So the way
// is chosen at the first open and kept until the last close. Used by the mount's one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "fsproxy/fuse/backing_helper.h"
#include "fsproxy/overlay/overlay.h"

namespace cofferdam::fsproxy {

class Passthrough final {
 public:
  // Smaller files are quicker through the page cache: their attributes stay known after a read.
  static constexpr off_t kLeastBytes = 64 * 1024;
  static_assert(kLeastBytes >= overlay::Overlay::kOpenLateBelow, "what goes past us is open");
  // What is written past us is charged a moment later, and nothing can stop a writer that has
  // begun. So none begins when less than this, or less than half of the quota, is left …
  static constexpr std::uint64_t kLeastQuota = 1ULL << 30U;
  // … and one that comes as near as this ends the sandbox. More than can be written between two
  // looks at what was written.
  static constexpr std::uint64_t kLastQuota = 1ULL << 29U;

  // `helper` may be null: never. `mount`: its index with the helper.
  Passthrough(BackingHelper* helper, std::uint32_t mount) : helper_(helper), mount_(mount) {}

  bool possible() const { return helper_ != nullptr; }
  // The kernel agreed for this mount.
  void allow() { allowed_ = helper_ != nullptr; }
  bool on() const { return allowed_; }

  struct Way {
    bool passthrough = false;
    std::int32_t backing_id = 0;
    bool drop_pages =
        false;  // what is cached of this inode may be older than what was written past us
  };
  // An open that must not begin on this node: its content is about to change, and live passthrough
  // opens read another file. The names must lead to a new node first.
  bool needs_new_node(overlay::NodeId node, bool writes) const;
  // Whether a passthrough open of the node may write.
  bool has_writers(overlay::NodeId node) const;
  bool is_live(overlay::NodeId node) const;
  // The way of an open that succeeds; paired with release().
  // `fresh`: created or cut now, so that its size says nothing. `may_write`: of the quota enough is
  // left.
  Way acquire(const overlay::OpenFile& file, bool fresh, bool may_write);
  void release(const overlay::OpenFile& file, bool passthrough);
  // Backing files that nobody uses any more are given back in batches: now.
  void flush();

  // What upper had lies in a frozen layer now: whoever opens it to write needs a new node.
  // `stays`: whether a node's object did not.
  void freeze(const std::function<bool(overlay::NodeId)>& stays);
  // The kernel knows the inode no more.
  void forget(overlay::NodeId node);

  std::uint64_t opens() const { return opens_; }

 private:
  struct Inode {
    std::int32_t backing_id = 0;
    bool of_lower = false;
    std::uint32_t passthrough = 0;  // opens
    std::uint32_t writers = 0;      // of these
    std::uint32_t cached = 0;
    bool stale_pages = false;
  };

  BackingHelper* helper_;
  std::uint32_t mount_;
  bool allowed_ = false;
  std::uint64_t opens_ = 0;
  std::vector<std::int32_t> unused_;
  std::unordered_map<overlay::NodeId, Inode> inodes_;
};

}  // namespace cofferdam::fsproxy
