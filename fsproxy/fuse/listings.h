// Listings: those that are being read, by directory. The kernel opens and closes directories
// without a word (no_opendir of <linux/fuse.h>), so that a listing is taken with its first entry
// and dropped after its last. Used by the mount's thread.
#pragma once

#include <list>
#include <unordered_map>

#include "fsproxy/overlay/overlay.h"

namespace cofferdam::fsproxy {

class Listings final {
 public:
  // A reader whose listing was dropped gets a new one: offsets mean the same in it.
  static constexpr std::size_t kMost = 64;

  explicit Listings(overlay::Overlay& view) : view_(&view) {}
  ~Listings();
  Listings(const Listings&) = delete;
  Listings& operator=(const Listings&) = delete;

  // With offset 0 a new one is taken.
  Result<overlay::OpenDir*> get(overlay::NodeId dir, off_t offset);
  void drop(overlay::NodeId dir);

  // The kernel has begun to keep a listing of `entries`, and their attributes with it.
  void keeps(overlay::NodeId dir, std::size_t entries) { kept_[dir] = {entries, 0}; }
  // A file of the directory was read, after which the kernel asks for its attributes again, those
  // of each file on its own. Whether so many were that the directory is cheaper to list again (with
  // all attributes): then the kernel is to forget the listing.
  bool read_below(overlay::NodeId dir);
  // The kernel knows the directory no more.
  void forget(overlay::NodeId dir) { kept_.erase(dir); }

 private:
  // A request of its own costs several times what an entry of a listing does.
  static constexpr std::size_t kEntriesPerRead = 8;
  struct Kept {
    std::size_t entries = 0;
    std::size_t reads = 0;
  };
  struct One {
    overlay::NodeId dir;
    overlay::OpenDir* open;
  };
  overlay::Overlay* view_;
  std::list<One> open_;  // the one used last is first
  std::unordered_map<overlay::NodeId, Kept> kept_;
};

}  // namespace cofferdam::fsproxy
