// Listings: those that are being read, by directory. The kernel opens and closes directories
// without a word (no_opendir of <linux/fuse.h>), so that a listing is taken with its first entry
// and dropped after its last. Used by the mount's thread.
#pragma once

#include <list>

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

 private:
  struct One {
    overlay::NodeId dir;
    overlay::OpenDir* open;
  };
  overlay::Overlay* view_;
  std::list<One> open_;  // the one used last is first
};

}  // namespace cofferdam::fsproxy
