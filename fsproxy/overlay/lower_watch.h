// LowerWatch: who tells that a lower directory changed. Without one, or where it refuses, the
// kernel is told to ask again after a moment. Used by the mount's one thread.
#pragma once

#include "fsproxy/overlay/node.h"

namespace cofferdam::overlay {

class LowerWatch {
 public:
  virtual ~LowerWatch() = default;
  // Whether changes of the directory and of its entries are told from now on. `path_fd`: O_PATH.
  virtual bool add(NodeId dir, int path_fd) = 0;
  virtual void remove(NodeId dir) = 0;
};

// What somebody has to forget because lower changed.
struct Stale {
  NodeId dir = 0;    // its listing and attributes, where `listing`
  std::string name;  // the entry (dir, name), where not empty
  NodeId child = 0;  // attributes and pages of this one, where not 0
  bool listing = false;
  bool attributes_only = false;  // of the child: its pages are right
};

}  // namespace cofferdam::overlay
